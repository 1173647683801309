#include <doctest/doctest.h>

#include "tests/unit/templates/render.hpp"

namespace paceline {
namespace {

std::string repeated(const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
}

std::string failure(const std::string& source) {
    const Result<jinja::Text> text = testing::render(source);
    REQUIRE(!text.ok());
    return text.error().what;
}

bool has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a template that never ends is stopped") {
    const std::string loop = "{% for a in range(100000) %}";
    CHECK(has(failure(loop + loop + "{% endfor %}{% endfor %}"), "more than"));
    CHECK(has(failure("{{ range(1000000) }}"), "100000"));
    CHECK(has(failure("{% set n = namespace(t='a') %}{% for i in range(90000) %}"
                      "{% set n.t = n.t + n.t %}{% endfor %}"),
              "MiB"));
    CHECK(has(failure("{{ 'abc' * 1000000000000 }}"), "chat template"));
    CHECK(has(failure("{% set n = namespace(l=[1]) %}{% for i in range(200) %}"
                      "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l == [] }}{{ n.l }}"),
              "chat template"));
}

TEST_CASE("more output than the limit is refused") {
    jinja::Limits limits;
    limits.output_bytes = 1000;
    CHECK(testing::render("{% for i in range(100) %}0123456789{% endfor %}", "{}", limits).ok());
    CHECK(!testing::render("{% for i in range(101) %}0123456789{% endfor %}", "{}", limits).ok());
}

TEST_CASE("depth is limited, in the source and while rendering") {
    CHECK(has(failure("{{ " + repeated("(", 200'000) + "1" + repeated(")", 200'000) + " }}"),
              "levels"));
    CHECK(has(failure("{{ " + repeated("[", 200'000) + repeated("]", 200'000) + " }}"), "levels"));
    CHECK(has(failure("{{ " + repeated("not ", 200'000) + "1 }}"), "levels"));
    CHECK(has(failure("{{ " + repeated("-", 200'000) + "1 }}"), "levels"));
    CHECK(has(failure("{{ 1" + repeated(" + 1", 200'000) + " }}"), "levels"));
    CHECK(has(failure("{{ a" + repeated(".a", 200'000) + " }}"), "levels"));
    CHECK(has(failure("{{ a" + repeated("|list", 200'000) + " }}"), "levels"));
    CHECK(has(failure("{{ 1" + repeated(" if 1 else 1", 200'000) + " }}"), "levels"));
    CHECK(has(failure(repeated("{% if 1 %}", 200'000)), "levels"));
    CHECK(has(failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "levels"));
    CHECK(has(failure("{% set n = namespace(l=[]) %}{% for i in range(5000) %}{% set n.l = [n.l] %}"
                      "{% endfor %}{{ n.l }}"),
              "levels"));
}

TEST_CASE("values that refer to each other in a circle are freed") {
    CHECK(testing::rendered(
              "{% set n = namespace() %}{% set n.self = n %}{{ n.self.self is defined }}") ==
          "True");
}

}  // namespace paceline
