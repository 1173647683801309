// Where a stop string ends an answer, over token borders.
#include "model/sampling/stop_matcher.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;

namespace {

using Strings = std::vector<std::string>;

struct Answer {
    std::string text;
    bool stopped = false;
    Strings steps = {};  // what each push released

    bool operator==(const Answer& other) const {
        return text == other.text && stopped == other.stopped;
    }
};

Answer read(const Strings& stop_strings, const Strings& pieces, const std::string& rest = {}) {
    REQUIRE(validate_stop_strings(stop_strings).ok());
    StopMatcher matcher(stop_strings);
    Answer answer;
    for (const std::string& piece : pieces) {
        answer.steps.push_back(matcher.push(piece));
        answer.text += answer.steps.back();
        if (matcher.found()) break;
    }
    answer.text += matcher.finish(rest);
    answer.stopped = matcher.found();
    return answer;
}

/// The definition: read byte by byte; the first byte at which a stop string ends is the end.
Answer by_definition(const Strings& strings, const std::string& text) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::size_t longest = 0;
        for (const std::string& s : strings) {
            if (s.size() <= end && text.compare(end - s.size(), s.size(), s) == 0) {
                longest = std::max(longest, s.size());
            }
        }
        if (longest > 0) return {.text = text.substr(0, end - longest), .stopped = true};
    }
    return {.text = text};
}

}  // namespace

TEST_CASE("without stop strings all text passes at once") {
    const Answer answer = read({}, {"one", " two", ""});
    CHECK(answer.text == "one two");
    CHECK_FALSE(answer.stopped);
    CHECK(answer.steps == Strings{"one", " two", ""});
}

TEST_CASE("a stop string is found across token borders and never shown") {
    const Answer answer = read({"\nUser:"}, {"Hello", "\n", "Us", "er", ": no"});
    CHECK(answer.text == "Hello");
    CHECK(answer.stopped);
    CHECK(answer.steps == Strings{"Hello", "", "", "", ""});
}

TEST_CASE("held text is released as soon as it cannot become a stop string") {
    const Answer answer = read({"\nUser:"}, {"Hi\nU", "se", "d", " car"});
    CHECK(answer.steps == Strings{"Hi", "", "\nUsed", " car"});
}

TEST_CASE("only the part that may still become a stop string is held back") {
    const Answer answer = read({"aab"}, {"aa", "a", "a", "b"});
    CHECK(answer.steps == Strings{"", "a", "a", ""});
    CHECK(answer.text == "aa");
    CHECK(answer.stopped);
}

TEST_CASE("an overlapping beginning is not lost: aab in aaab") {
    CHECK(read({"aab"}, {"aaab"}).text == "a");
    CHECK(read({"abab!"}, {"ababab!"}).text == "ab");
}

TEST_CASE("of two stop strings, one the beginning of the other, the shorter one comes first") {
    const Answer answer = read({"ENDING", "END"}, {"x", "EN", "DING", "y"});
    CHECK(answer.text == "x");
    CHECK(answer.steps.size() == 3);
}

TEST_CASE("of two stop strings that end together the longer one is cut away") {
    CHECK(read({"b", "ab"}, {"xab"}).text == "x");
    CHECK(read({"ab", "b"}, {"xab"}).text == "x");
}

TEST_CASE("the stop string that is complete first wins, even if another began before") {
    CHECK(read({"abcd", "c"}, {"zabcd"}).text == "zab");
}

TEST_CASE("a stop string of several bytes per character leaves whole characters") {
    const Strings held{"好", "。", "\xf0\x9f\x9a\x80", "\xf0\x9f\x9b\x91"};
    const Answer stopped = read({"。\xf0\x9f\x9b\x91"}, {"好", "。", "\xf0\x9f\x9b\x91"});
    CHECK(stopped.text == "好");
    // The rocket shares three of its four bytes with the stop sign.
    const Answer passed = read({"。\xf0\x9f\x9b\x91"}, held);
    CHECK(passed.steps == Strings{"好", "", "。\xf0\x9f\x9a\x80", "\xf0\x9f\x9b\x91"});
}

TEST_CASE("the end of the stream releases what was held, and may still complete a stop string") {
    CHECK(read({"abc"}, {"xab"}).text == "xab");
    const Answer answer = read({"abc"}, {"xab"}, "c");
    CHECK(answer.text == "x");
    CHECK(answer.stopped);
}

TEST_CASE("the answer does not depend on how the text is cut into tokens") {
    std::mt19937 random(3);
    for (int round = 0; round < 3000; ++round) {
        Strings strings(1 + random() % 4);
        for (std::string& s : strings) {
            for (std::size_t i = 1 + random() % 4; i > 0; --i)
                s += static_cast<char>('a' + random() % 2);
        }
        std::string text;
        for (std::size_t i = random() % 24; i > 0; --i)
            text += static_cast<char>('a' + random() % 3);
        Strings pieces;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t length = std::min<std::size_t>(random() % 4, text.size() - at);
            pieces.push_back(text.substr(at, length));
            at += length;
        }
        CAPTURE(text);
        CHECK(read(strings, pieces) == by_definition(strings, text));
    }
}

TEST_CASE("bad stop strings are refused with their value") {
    const auto refusal = [](const Strings& stop_strings) {
        const Status status = validate_stop_strings(stop_strings);
        REQUIRE_FALSE(status.ok());
        CHECK(status.error().code == Errc::BadArgument);
        return status.error().what;
    };
    CHECK(refusal({"ok", ""}).find("stop string 1 is empty") != std::string::npos);
    CHECK(refusal(Strings(kStopStringsMax + 1, "x")).find("17") != std::string::npos);
    CHECK(refusal({std::string(1025, 'x')}).find("1025 bytes") != std::string::npos);
    CHECK(refusal({"\x80"}).find("UTF-8") != std::string::npos);
    CHECK(refusal({"\xe5\xa5"}).find("UTF-8") != std::string::npos);
    CHECK(validate_stop_strings(Strings(kStopStringsMax, "x")).ok());
}
