// render(): a template and its variables as JSON, for tests.
#pragma once

#include <string>
#include <string_view>

#include "model/templates/template.hpp"

namespace paceline::testing {

/// Monday, 9 March 2026, 14:05:07.000042: what the fixtures were made with.
[[nodiscard]] jinja::LocalTime fixture_time();

/// `variables` is a JSON object.
[[nodiscard]] Result<jinja::Text> render(std::string_view source,
                                         std::string_view variables = "{}",
                                         const jinja::Limits& limits = {});
/// The text, or "error: ..." without the place.
[[nodiscard]] std::string rendered(std::string_view source, std::string_view variables = "{}");

}  // namespace paceline::testing
