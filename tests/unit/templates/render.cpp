#include "tests/unit/templates/render.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "model/templates/json_value.hpp"

namespace paceline::testing {

jinja::LocalTime fixture_time() {
    std::tm now{};
    now.tm_year = 126;
    now.tm_mon = 2;
    now.tm_mday = 9;
    now.tm_hour = 14;
    now.tm_min = 5;
    now.tm_sec = 7;
    now.tm_wday = 1;
    now.tm_yday = 67;
    return {.calendar = now, .microseconds = 42};
}

Result<jinja::Text> render(std::string_view source,
                           std::string_view variables,
                           const jinja::Limits& limits) {
    const Result<jinja::Template> parsed = jinja::Template::parse(source);
    if (!parsed) return parsed.error();
    jinja::Variables given;
    for (const auto& [name, text] :
         {std::pair{"bos_token", "<s>"}, std::pair{"eos_token", "</s>"},
          std::pair{"unk_token", "<unk>"}, std::pair{"pad_token", "<pad>"}})
        given.set_text(name, text, jinja::Origin::Template);
    const auto object = nlohmann::ordered_json::parse(variables);
    for (const auto& [name, value] : object.items()) {
        const Result<jinja::Value> made = jinja::json_value(given.heap(), value.dump());
        REQUIRE(made.ok());
        given.set(name, made.value());
    }
    return parsed.value().render(given, fixture_time(), limits);
}

std::string rendered(std::string_view source, std::string_view variables) {
    const Result<jinja::Text> text = render(source, variables);
    if (text) return text.value().bytes();
    const std::string& what = text.error().what;
    return "error: " + what.substr(what.find(": ") + 2);
}

}  // namespace paceline::testing
