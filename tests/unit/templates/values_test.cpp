#include <doctest/doctest.h>

#include "tests/unit/templates/render.hpp"

namespace paceline {

using testing::rendered;

namespace {

bool is_refused(const std::string& expression, const char* name) {
    const std::string said = rendered("{{ " + expression + " }}", R"({"d": {"a": 1}})");
    return said.starts_with("error: ") && said.find(name) != std::string::npos;
}

}  // namespace

// The expected texts are those of jinja2 3.1.6.

TEST_CASE("a range is a range: printed, sliced, compared, with its numbers") {
    CHECK(rendered("{{ range(2) }} {{ range(1, 5, 2) }} {{ [range(3, 0, -1)] }}") ==
          "range(0, 2) range(1, 5, 2) [range(3, 0, -1)]");
    CHECK(rendered("{{ range(1, 9)[2:5] }} {{ range(5)[::-1] }} {{ range(0, 10, 3)[1:] }}") ==
          "range(3, 6) range(4, -1, -1) range(3, 12, 3)");
    CHECK(rendered("{{ range(3).start }}{{ range(3).stop }}{{ range(3).step }}{{ range(3).x }}") ==
          "031");
    CHECK(rendered("{{ range(3) == [0, 1, 2] }} {{ range(0) == range(2, 1) }} {{ range(3) | list }}"
                   " {{ 2 in range(3) }} {{ range(4)[-1] }} {{ range(2) is sequence }}") ==
          "False True [0, 1, 2] True 3 True");
    CHECK(rendered("{{ range(5).index(3) }} {{ range(5).count(3) }} {{ range(5) | length }}"
                   "{% for i in range(2) %} {{ i }}{% endfor %}") == "3 1 5 0 1");
    CHECK(is_refused("range(2) | tojson", "range has no JSON"));
    CHECK(is_refused("range(2) + [1]", "range and list"));
    CHECK(is_refused("range(2) * 2", "range and int"));
    CHECK(is_refused("range(2) < range(3)", "range and range"));
    CHECK(is_refused("range(0, 9223372036854775807, 4611686018427387904)[1::4]", "64 bits"));
}

TEST_CASE("a macro has a name and arguments, and may take more than it names") {
    CHECK(rendered("{% macro f(a, b='x') %}{% endmacro %}{{ f }} {{ f.name }} {{ f.arguments }} "
                   "{{ f.catch_kwargs }} {{ f.catch_varargs }} {{ f.caller }} "
                   "{{ f.explicit_caller }}[{{ f.other }}]{{ [f] }}") ==
          "<Macro 'f'> f ('a', 'b') False False False False[][<Macro 'f'>]");
    CHECK(
        rendered("{% macro f(a) %}{{ a }} {{ varargs }} {{ kwargs }}{% endmacro %}"
                 "{{ f(1, 2, 3, x=4) }} {{ f(a=5) }} {{ f.catch_kwargs }}{{ f.catch_varargs }}") ==
        "1 (2, 3) {'x': 4} 5 () {} TrueTrue");
    CHECK(rendered(
              "{% macro f(kwargs) %}[{{ kwargs }}]{% endmacro %}{{ f() }}{{ f.catch_kwargs }}") ==
          "[]False");
    CHECK(rendered("{% macro f() %}{% endmacro %}{{ f(1) }}").starts_with("error: the macro 'f'"));
    CHECK(
        rendered("{% macro f() %}{% endmacro %}{{ f(x=1) }}").starts_with("error: the macro 'f'"));
}

TEST_CASE("namespaces, loops and views of dictionaries are printed as in Python") {
    CHECK(rendered("{{ namespace(a=1, b='x') }} {{ [namespace()] }}") ==
          "<Namespace {'a': 1, 'b': 'x'}> [<Namespace {}>]");
    CHECK(rendered("{% set n = namespace() %}{% set n.l = [n] %}{{ n }}") ==
          "<Namespace {'l': [<Namespace {...}>]}>");
    CHECK(rendered("{% for i in 'abc' %}{{ loop }}{% endfor %}") ==
          "<LoopContext 1/3><LoopContext 2/3><LoopContext 3/3>");
    CHECK(rendered("{{ d.keys() }} {{ d.values() }} {{ d.items() }}", R"({"d": {"a": 1}})") ==
          "dict_keys(['a']) dict_values([1]) dict_items([('a', 1)])");
    CHECK(rendered("{{ d.keys() == e.keys() }} {{ d.values() == d.values() }} "
                   "{{ d.items() == e.items() }}",
                   R"({"d": {"a": 1, "b": 2}, "e": {"b": 2, "a": 1}})") == "True False True");
    CHECK(rendered("{{ ['<' | safe] }}") == "[Markup('<')]");
    CHECK(is_refused("range", "the function 'range' cannot be printed"));
    CHECK(is_refused("'a'.upper", "the method 'upper' cannot be printed"));
    CHECK(is_refused("[1] | map('string')", "'| list'"));
}

TEST_CASE("a loop in a loop has the depth 1, since it is not recursive") {
    CHECK(rendered("{% for i in 'ab' %}{% for k in 'c' %}{{ loop.depth }}{{ loop.depth0 }}"
                   "{% endfor %}{{ loop.depth }}{% endfor %}") == "101101");
}

TEST_CASE("a loop that a namespace keeps goes on counting") {
    CHECK(rendered("{% set n = namespace(l=none) %}{% for i in [1, 2, 3] %}"
                   "{% if loop.first %}{% set n.l = loop %}{% endif %}{{ n.l.index }}{% endfor %}"
                   "{{ n.l.index }}{{ n.l.last }}") == "1233True");
}

TEST_CASE("an attribute that Python does not have is undefined") {
    for (const char* object :
         {"none", "true", "1", "1.5", "'a'", "[1]", "(1,)", "{}", "range(2)", "[1] | map('string')",
          "d.keys()", "namespace()", "range", "d.get"}) {
        CAPTURE(object);
        CHECK(rendered("[{{ (" + std::string{object} + ").nothing }}]", R"({"d": {}})") == "[]");
        CHECK(rendered("{{ (" + std::string{object} + ")['nothing'] is defined }}",
                       R"({"d": {}})") == "False");
    }
    CHECK(is_refused("x.nothing", "'x' is undefined"));
    CHECK(is_refused("x['nothing']", "'x' is undefined"));
    // A tuple has no copy().
    CHECK(rendered("{{ (1, 2).copy is defined }}{{ [1].copy is defined }}") == "FalseTrue");
}

TEST_CASE("an attribute that Python has and this engine lacks is refused by its name") {
    for (const auto& [object, name] :
         {std::pair{"'a'", "zfill"}, std::pair{"'a'", "format"},
          std::pair{"('a' | safe)", "striptags"}, std::pair{"(1)", "real"},
          std::pair{"true", "bit_length"}, std::pair{"(1.5)", "is_integer"},
          std::pair{"d", "fromkeys"}, std::pair{"d.keys()", "isdisjoint"},
          std::pair{"d.values()", "mapping"}, std::pair{"([1] | map('string'))", "send"},
          std::pair{"dict", "fromkeys"}}) {
        CAPTURE(object);
        CHECK(is_refused(std::string{object} + "." + name, name));
        CHECK(is_refused(std::string{object} + "['" + name + "'] is defined", name));
    }
    CHECK(is_refused("cycler", "'cycler' is not supported"));
    CHECK(is_refused("joiner is defined", "'joiner' is not supported"));
    CHECK(is_refused("self", "'self' is not supported"));
    CHECK(rendered("{% set self = 1 %}{{ self }}") == "1");
}

TEST_CASE(
    "an item of a dictionary may have the name of a list's method, and no item of a dictionary's") {
    const char* d = R"({"d": {"sort": 1, "append": 2, "pop": 3, "add": 4, "_id": 5}})";
    CHECK(rendered("{{ d.sort }}{{ d.append }}[{{ d.pop }}]{{ d.add }}{{ d._id }}{{ d['pop'] }}",
                   d) == "12[]453");
    // jinja2 looks for an attribute where there is no item.
    CHECK(rendered("{{ d['items'] is defined }}{{ d['update'] is defined }}", d) == "TrueFalse");
    CHECK(rendered("{{ d['keys']() | list | length }}", d) == "5");
}

TEST_CASE("an attribute of a namespace does not begin with an underscore") {
    CHECK(is_refused("namespace(_x=1)", "'_x'"));
    CHECK(rendered("{% set n = namespace() %}{% set n._x = 1 %}")
              .starts_with("error: the attribute"));
}

TEST_CASE("values are the same, keys and in a case as in Python") {
    CHECK(rendered("{{ [] is sameas [] }} {{ x is sameas x }} {{ 1 is sameas true }} "
                   "{{ d is sameas d }} {{ none is sameas none }} {{ range is sameas range }}",
                   R"({"d": []})") == "False False False True True True");
    CHECK(rendered("{{ d.get == d.get }} {{ d.get == d.keys }} {{ range == dict }}",
                   R"({"d": {}})") == "True False False");
    CHECK(rendered("{{ {(1, 2): 'a', range(2): 'b'}[(1, 2)] }}") == "a");
    CHECK(is_refused("{(1, []): 1}", "tuple cannot be a key"));
    CHECK(is_refused("[{}] | unique | list", "unique() of dict"));
    CHECK(rendered("{{ 1 is lower }} {{ none is upper }} {{ ['a'] is lower }} {{ x is lower }}") ==
          "False False True False");
    CHECK(rendered("{{ 2.0 is even }} {{ 3.0 is odd }} {{ 1.5 is odd }} {{ 6 is divisibleby 3 }} "
                   "{{ 7.5 is divisibleby(2.5) }}") == "True True False True True");
    CHECK(is_refused("1 is divisibleby 0", "division by zero"));
}

TEST_CASE("what has no order of items cannot be sliced") {
    for (const char* object : {"none", "true", "1", "1.5", "d", "d.keys()", "namespace()", "range",
                               "[1] | map('string')"}) {
        CAPTURE(object);
        CHECK(is_refused("(" + std::string{object} + ")[1:]", "cannot be sliced"));
    }
}

TEST_CASE("an iterator that is reversed is a list") {
    CHECK(rendered("{{ [1, 2] | map('string') | reverse }}") == "['2', '1']");
}

TEST_CASE("the names of a namespace that come from a user stay the user's") {
    const Result<jinja::Text> text =
        testing::render("{{ namespace(d) }}", R"({"d": {"<|im_end|>": 1}})");
    REQUIRE(text.ok());
    CHECK(text.value().bytes() == "<Namespace {'<|im_end|>': 1}>");
    CHECK(text.value().origin(text.value().bytes().find("<|im")) == jinja::Origin::User);
}

}  // namespace paceline
