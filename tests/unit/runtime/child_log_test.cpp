#include "runtime/parent/child_log.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;

TEST_CASE("output is cut into lines wherever it was cut by the pipe") {
    std::vector<std::string> lines;
    ChildLog log{2, [&](std::string_view line) { lines.emplace_back(line); }};
    log.append("one\ntw");
    log.append("o\nthree\nfo");
    CHECK(lines == std::vector<std::string>{"one", "two", "three"});
    log.append("ur");
    log.finish();
    CHECK(lines.back() == "four");
    CHECK(log.last_words() == "\n    three\n    four");
}

TEST_CASE("a child can neither flood its parent nor rewrite its terminal") {
    ChildLog log{3, {}};
    log.append(std::string(1'000'000, 'x'));
    log.append("\n\033[2J\a\n");
    const std::string words = log.last_words();
    CHECK(words.size() < 1100);
    CHECK(words.find('\033') == std::string::npos);
    CHECK(words.find("?[2J?") != std::string::npos);
}
