#include <doctest/doctest.h>

#include "model/templates/printing.hpp"
#include "tests/unit/templates/render.hpp"

namespace paceline {

using testing::rendered;

TEST_CASE("numbers are printed as Python prints them") {
    CHECK(rendered("{{ 1 }} {{ 1.0 }} {{ 1.50 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }}") ==
          "1 1.0 1.5 1e+16 1000000000000000.0 1e-05 0.0001");
    CHECK(rendered("{{ x }} {{ x | tojson }}", R"({"x": [1, 1.0, 3.141592653589793, -0.0]})") ==
          "[1, 1.0, 3.141592653589793, -0.0] [1, 1.0, 3.141592653589793, -0.0]");
    CHECK(rendered("{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 6 / 2 }} {{ 2 ** -1 }}") ==
          "3 -4 2 3.0 0.5");
    CHECK(rendered("{{ 9223372036854775807 + 1 }}").find("64 bits") != std::string::npos);
}

TEST_CASE("lists, dictionaries and texts are printed as Python's repr, in the order of insertion") {
    CHECK(rendered("{{ x }}", R"({"x": {"b": [true, null], "a": "it's", "c": "\n\"'\u00e9"}})") ==
          "{'b': [True, None], 'a': \"it's\", 'c': '\\n\"\\'\xc3\xa9'}");
    CHECK(rendered("{{ (1,) }}{{ () }}{{ [] }}{{ {} }}") == "(1,)()[]{}");
}

TEST_CASE("JSON has the separators and the characters of json.dumps") {
    const char* x = R"({"x": {"b": [1, "é\u0001\u007f/<"], "a": {}}})";
    CHECK(rendered("{{ x | tojson }}", x) == "{\"b\": [1, \"\xc3\xa9\\u0001\x7f/<\"], \"a\": {}}");
    CHECK(rendered("{{ x | tojson(sort_keys=true, separators=(',', ':')) }}", x) ==
          "{\"a\":{},\"b\":[1,\"\xc3\xa9\\u0001\x7f/<\"]}");
    CHECK(rendered("{{ [1, []] | tojson(indent=2) }}") == "[\n  1,\n  []\n]");
    CHECK(rendered("{{ '\xf0\x9f\x98\x80' | tojson(ensure_ascii=true) }}") == "\"\\ud83d\\ude00\"");
}

TEST_CASE("blocks take the line break after them and the blanks before them away") {
    CHECK(rendered("a\n  {% if true %}\n b\n  {% endif %}\nc\n") == "a\n b\nc");
    CHECK(rendered("a \n {%- if true -%} \n b {% endif +%}\nc") == "ab \nc");
    CHECK(rendered("  {{ 1 }}\n  {# x #}\n2\r\n3\r4") == "  1\n2\n3\n4");
    CHECK(rendered("x {{- ' y ' -}} z") == "x y z");
    CHECK(rendered("{{ {'a': {'b': 1}} }}") == "{'a': {'b': 1}}");
}

TEST_CASE(
    "a loop has a scope of its own, a namespace is shared, a macro sees where it is defined") {
    CHECK(
        rendered("{% set x = 1 %}{% for i in [2, 3] %}{% set x = i %}{{ x }}{% endfor %}{{ x }}") ==
        "231");
    CHECK(rendered("{% set n = namespace(x=1) %}{% for i in [2] %}{% set n.x = i %}{% endfor %}{{ "
                   "n.x }}") == "2");
    CHECK(rendered("{% macro f(a, b='d') %}{{ a ~ b ~ c }}{% endmacro %}{% set c = 'C' %}{{ f(1) }}"
                   "{{ f(b=2, a=3) }}") == "1dC32C");
    CHECK(rendered("{% if true %}{% set x = 1 %}{% endif %}{{ x }}") == "1");
}

TEST_CASE("what is undefined prints nothing, and its attributes are an error that names it") {
    CHECK(rendered("[{{ x }}{{ x is defined }}{{ x | default('d') }}{{ y.z }}]", R"({"y": {}})") ==
          "[Falsed]");
    CHECK(rendered("{{ x.y }}") == "error: 'x' is undefined");
    CHECK(rendered("{{ 'a' + x }}") == "error: 'x' is undefined");
    CHECK(rendered("\n\n{{ none.a.b }}") == "error: 'a' is undefined");
}

TEST_CASE("what the sandbox forbids fails when it is reached, not before") {
    CHECK(rendered("{% if false %}{{ [].append(1) }}{% endif %}ok") == "ok");
    CHECK(rendered("{{ [].append(1) }}") == "error: 'append' is undefined");
    CHECK(rendered("{{ ''.__class__ }}|{{ x.__init__ }}", R"({"x": {}})") == "|");
}

TEST_CASE("a text that went through safe is printed, and what is joined to it is escaped") {
    CHECK(rendered("{{ '<' | safe }}{{ '<a>' | safe ~ '&' }}") == "<<a>&");
    CHECK(rendered("{{ '<' | safe + '<&' }} {{ '\"' + ('>' | safe) }}") == "<&lt;&amp; &#34;>");
    CHECK(rendered("{{ ('a' | safe).strip() }}").starts_with("error: methods of a text"));
}

TEST_CASE("errors name the line and what is not there") {
    const auto what = [](std::string_view source) { return testing::render(source).error().what; };
    CHECK(what("a\n{% extends 'x' %}") ==
          "the chat template, line 2: the tag 'extends' is not supported");
    CHECK(what("{{ 1 | groupby('a') }}").find("the filter 'groupby'") != std::string::npos);
    CHECK(what("{{ [1] | map('pprint') }}").find("the filter 'pprint'") != std::string::npos);
    CHECK(what("{{ 1 is filter }}").find("the test 'filter'") != std::string::npos);
    CHECK(what("{{ lipsum() }}").find("the function 'lipsum'") != std::string::npos);
    CHECK(what("{{ 'a'.encode() }}").find("the method 'encode'") != std::string::npos);
    CHECK(what("{% for x in y recursive %}{% endfor %}").find("recursive") != std::string::npos);
    CHECK(what("{% if x %}").find("'endif' is missing") != std::string::npos);
    CHECK(what("{% endif %}").find("closes nothing") != std::string::npos);
    CHECK(what("{% for in x %}{% endfor %}").find("a name is expected") != std::string::npos);
    CHECK(what("{% set () = 1 %}").find("a name is expected") != std::string::npos);
    CHECK(what("{{ 'a").find("quote") != std::string::npos);
    CHECK(what("{{ 1 +").find("}}") != std::string::npos);
    CHECK(what("{{ raise_exception('no ' ~ 1) }}").find("refuses the conversation: no 1") !=
          std::string::npos);
}

}  // namespace paceline
