#include "model/weights/message_text.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

TEST_CASE("what a terminal obeys is escaped, what it shows is not") {
    CHECK(visible("plain, \"quoted\" \\ \u00e9 \u4e2d \U0001F600") ==
          "plain, \"quoted\" \\ \u00e9 \u4e2d \U0001F600");
    CHECK(visible("\x1b[2J\a\t\n\r") == "\\x1b[2J\\x07\\x09\\x0a\\x0d");
    CHECK(visible("\x7f") == "\\x7f");
    CHECK(visible(std::string_view{"a\0b", 3}) == "a\\x00b");
}

TEST_CASE("control characters of Latin-1, as UTF-8 and as bytes, are escaped") {
    CHECK(visible("\xC2\x9B"
                  "2J") == "\\xc2\\x9b2J");
    CHECK(visible("\x9B"
                  "2J") == "\\x9b2J");
    CHECK(visible("\xC2\xA0") == "\xC2\xA0");  // the first character behind them
}

TEST_CASE("what changes the direction of text or breaks its line is escaped") {
    CHECK(visible("a\xE2\x80\xAE"
                  "b") == "a\\xe2\\x80\\xaeb");  // U+202E
    CHECK(visible("a\xE2\x81\xA6"
                  "b") ==
          "a\\xe2\\x81\\xa6"
          "b");  // U+2066
    CHECK(visible("a\xE2\x80\xA8"
                  "b") ==
          "a\\xe2\\x80\\xa8"
          "b");  // U+2028
}

TEST_CASE("a long text is cut between two characters") {
    CHECK(visible(std::string(80, 'x')) == std::string(80, 'x'));
    CHECK(visible(std::string(81, 'x')) == std::string(80, 'x') + "...");
    CHECK(visible("ab\u00e9", 3) == "ab...");
    CHECK(visible("\xE4\xB8", 80) == "\\xe4\\xb8");  // ends inside a character
    CHECK(visible("", 0).empty());
}

TEST_CASE("a message keeps its lines, and each of them is bounded") {
    CHECK(visible_lines("one\ntwo\x1b\n\n") == "one\ntwo\\x1b\n\n");
    CHECK(visible_lines("").empty());
    const std::string long_line(5000, 'x');
    CHECK(visible_lines(long_line + "\nb") == std::string(2000, 'x') + "...\nb");
}

TEST_CASE("quotes and backslashes are escaped inside quotes") {
    CHECK(quoted_text("a\"b\\c\x1b") == "\"a\\x22b\\x5cc\\x1b\"");
    CHECK(quoted_text(std::string(100, 'x')) == '"' + std::string(80, 'x') + "...\"");
}
