#include <algorithm>

#include <doctest/doctest.h>

#include "tests/unit/templates/render.hpp"

namespace paceline {
namespace {

/// What of the text is the user's; '_' stands for each byte of the template.
std::string of_user(std::string_view source) {
    const Result<jinja::Text> text =
        testing::render(source, R"({"x": "<U>é", "d": {"k<": "v<"}, "l": ["b<", "a<"]})");
    REQUIRE_MESSAGE(text.ok(), text.error().what);
    std::string shown = text.value().bytes();
    for (std::size_t i = 0; i < shown.size(); ++i) {
        if (text.value().origin(i) == jinja::Origin::Template) shown[i] = '_';
    }
    return shown;
}

}  // namespace

TEST_CASE("every operation keeps which bytes are the user's") {
    CHECK(of_user("a{{ x }}b") == "_<U>\xc3\xa9_");
    CHECK(of_user("{{ 'a' + x ~ 1 }}") == "_<U>\xc3\xa9_");
    CHECK(of_user("{{ x[1:3] }}{{ x[::-1] }}{{ x[0] }}") == "U>\xc3\xa9>U<<");
    CHECK(of_user("{{ x | upper }}{{ x.lower() }}{{ x | trim }}{{ x | title }}") ==
          "<U>\xc3\x89<u>\xc3\xa9<U>\xc3\xa9<U>\xc3\xa9");
    CHECK(of_user("{{ [x] }}{{ [x] | tojson }}") == "__<U>\xc3\xa9____<U>\xc3\xa9__");
    CHECK(of_user("{{ x | tojson(ensure_ascii=true) }}") == "_<U>\\u00e9_");
    CHECK(of_user("{{ d }}{{ d | tojson }}") == "__k<____v<____k<____v<__");
    CHECK(of_user("{{ x.split('U') | join('-') }}") == "<_>\xc3\xa9");
    CHECK(of_user("{{ x | replace('U', 'template') }}") == "<________>\xc3\xa9");
    CHECK(of_user("{{ 'aUb' | replace('U', x) }}") == "_<U>\xc3\xa9_");
    CHECK(of_user("{{ l | sort | join }}{{ l | first }}{{ l | map('upper') | join(',') }}") ==
          "a<b<b<B<_A<");
    CHECK(of_user("{% set y %}[{{ x }}]{% endset %}{{ y * 2 }}") == "_<U>\xc3\xa9__<U>\xc3\xa9_");
    CHECK(of_user("{% macro m(a) %}({{ a }}){% endmacro %}{{ m(x) }}") == "_<U>\xc3\xa9_");
    CHECK(of_user("{% filter upper %}a{{ x }}{% endfilter %}") == "_<U>\xc3\x89");
    CHECK(of_user("{% for c in x %}{{ c }}.{% endfor %}") == "<_U_>_\xc3\xa9_");
    CHECK(of_user("{% for k, v in d.items() %}{{ k ~ v }}{% endfor %}") == "k<v<");
    CHECK(of_user("{{ x | indent(2, true) }}") == "__<U>\xc3\xa9");
    CHECK(of_user("{{ (x * 2).rsplit('>', 1)[0] }}") == "<U>\xc3\xa9<U");
}

}  // namespace paceline
