// JSON lines: a JSON value per line, as prompt sets and the texts of a datastore have them.
//
// Blank lines are left out. Input is bounded by its reader (text_input.hpp), its nesting here.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "ipc/base/result.hpp"

namespace paceline {

/// A value whose keys keep their order.
using LineReader = std::function<Status(const nlohmann::ordered_json& value, std::size_t line)>;

/// Calls `read` for each line, which is counted from 1. Errors: BadFile, with `name` and line: no
/// JSON, or more than 100 levels of it; those of `read`, with the same place in front. The first
/// one ends it.
[[nodiscard]] Status read_json_lines(std::string_view text,
                                     const std::string& name,
                                     const LineReader& read);

}  // namespace paceline
