// Where an answer ends: end tokens, stop strings over token borders, the token limit.
#include "model/sampling/stop_rules.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;

namespace {

constexpr TokenId kAnyToken = 1;
constexpr TokenId kEndToken = 2;

struct Answer {
    std::string text;
    StopReason reason = StopReason::None;
    std::int64_t tokens = 0;
    std::vector<std::string> steps = {};  // what each push released

    bool operator==(const Answer& other) const {
        return text == other.text && reason == other.reason;
    }
};

Answer read(const StopRules& rules,
            const std::vector<std::string>& pieces,
            const std::string& rest = {}) {
    REQUIRE(validate(rules).ok());
    StopMatcher matcher(rules);
    Answer answer;
    for (const std::string& piece : pieces) {
        const StopMatcher::Step step =
            matcher.push(piece == "<end>" ? kEndToken : kAnyToken, piece);
        answer.text += step.text;
        answer.steps.push_back(step.text);
        if (step.reason != StopReason::None) break;
    }
    answer.text += matcher.finish(rest);
    answer.reason = matcher.reason();
    answer.tokens = matcher.tokens();
    return answer;
}

StopRules stops(std::vector<std::string> strings) {
    return {.stop_strings = std::move(strings)};
}

/// The definition: read byte by byte; the first byte at which a stop string ends is the end.
Answer by_definition(const std::vector<std::string>& strings, const std::string& text) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::size_t longest = 0;
        for (const std::string& s : strings) {
            if (s.size() <= end && text.compare(end - s.size(), s.size(), s) == 0) {
                longest = std::max(longest, s.size());
            }
        }
        if (longest > 0)
            return {.text = text.substr(0, end - longest), .reason = StopReason::StopString};
    }
    return {.text = text, .reason = StopReason::None};
}

}  // namespace

TEST_CASE("without rules all text passes at once") {
    const Answer answer = read({}, {"one", " two", ""});
    CHECK(answer.text == "one two");
    CHECK(answer.reason == StopReason::None);
    CHECK(answer.steps == std::vector<std::string>{"one", " two", ""});
}

TEST_CASE("an end token ends the answer and has no text") {
    const Answer answer = read({.end_tokens = {9, kEndToken}}, {"Hi", "<end>", "more"});
    CHECK(answer.text == "Hi");
    CHECK(answer.reason == StopReason::EndToken);
    CHECK(answer.tokens == 2);
}

TEST_CASE("an end token releases what was held back") {
    const Answer answer =
        read({.end_tokens = {kEndToken}, .stop_strings = {"STOP"}}, {"a ST", "<end>"});
    CHECK(answer.text == "a ST");
    CHECK(answer.steps[0] == "a ");
    CHECK(answer.reason == StopReason::EndToken);
}

TEST_CASE("a stop string is found across token borders and never shown") {
    const Answer answer = read(stops({"\nUser:"}), {"Hello", "\n", "Us", "er", ": no"});
    CHECK(answer.text == "Hello");
    CHECK(answer.reason == StopReason::StopString);
    CHECK(answer.tokens == 5);
    CHECK(answer.steps == std::vector<std::string>{"Hello", "", "", "", ""});
}

TEST_CASE("held text is released as soon as it cannot become a stop string") {
    const Answer answer = read(stops({"\nUser:"}), {"Hi\nU", "se", "d", " car"});
    CHECK(answer.steps == std::vector<std::string>{"Hi", "", "\nUsed", " car"});
}

TEST_CASE("only the part that may still become a stop string is held back") {
    const Answer answer = read(stops({"aab"}), {"aa", "a", "a", "b"});
    CHECK(answer.steps == std::vector<std::string>{"", "a", "a", ""});
    CHECK(answer.text == "aa");
    CHECK(answer.reason == StopReason::StopString);
}

TEST_CASE("an overlapping beginning is not lost: aab in aaab") {
    CHECK(read(stops({"aab"}), {"aaab"}).text == "a");
    CHECK(read(stops({"abab!"}), {"ababab!"}).text == "ab");
}

TEST_CASE("of two stop strings, one the beginning of the other, the shorter one comes first") {
    const Answer answer = read(stops({"ENDING", "END"}), {"x", "EN", "DING", "y"});
    CHECK(answer.text == "x");
    CHECK(answer.tokens == 3);
}

TEST_CASE("of two stop strings that end together the longer one is cut away") {
    CHECK(read(stops({"b", "ab"}), {"xab"}).text == "x");
    CHECK(read(stops({"ab", "b"}), {"xab"}).text == "x");
}

TEST_CASE("the stop string that is complete first wins, even if another began before") {
    CHECK(read(stops({"abcd", "c"}), {"zabcd"}).text == "zab");
}

TEST_CASE("a stop string of several bytes per character leaves whole characters") {
    const std::vector<std::string> held{"好", "。", "\xf0\x9f\x9a\x80", "\xf0\x9f\x9b\x91"};
    const Answer stopped = read(stops({"。\xf0\x9f\x9b\x91"}), {"好", "。", "\xf0\x9f\x9b\x91"});
    CHECK(stopped.text == "好");
    // The rocket shares three of its four bytes with the stop sign.
    const Answer passed = read(stops({"。\xf0\x9f\x9b\x91"}), held);
    CHECK(passed.steps ==
          std::vector<std::string>{"好", "", "。\xf0\x9f\x9a\x80", "\xf0\x9f\x9b\x91"});
}

TEST_CASE("the token that reaches the limit is the last and keeps its text") {
    const Answer answer = read({.max_tokens = 2}, {"a", "b", "c"});
    CHECK(answer.text == "ab");
    CHECK(answer.reason == StopReason::MaxTokens);
    CHECK(answer.tokens == 2);
}

TEST_CASE("at the limit, a completed stop string or an end token is the reason") {
    CHECK(read({.stop_strings = {"b"}, .max_tokens = 2}, {"a", "b"}).reason ==
          StopReason::StopString);
    CHECK(read({.end_tokens = {kEndToken}, .max_tokens = 2}, {"a", "<end>"}).reason ==
          StopReason::EndToken);
}

TEST_CASE("the end of the stream releases what was held, and may still complete a stop string") {
    CHECK(read(stops({"abc"}), {"xab"}).text == "xab");
    const Answer answer = read(stops({"abc"}), {"xab"}, "c");
    CHECK(answer.text == "x");
    CHECK(answer.reason == StopReason::StopString);
}

TEST_CASE("the answer does not depend on how the text is cut into tokens") {
    std::mt19937 random(3);
    for (int round = 0; round < 3000; ++round) {
        std::vector<std::string> strings(1 + random() % 4);
        for (std::string& s : strings) {
            for (std::size_t i = 1 + random() % 4; i > 0; --i)
                s += static_cast<char>('a' + random() % 2);
        }
        std::string text;
        for (std::size_t i = random() % 24; i > 0; --i)
            text += static_cast<char>('a' + random() % 3);
        std::vector<std::string> pieces;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t length = std::min<std::size_t>(random() % 4, text.size() - at);
            pieces.push_back(text.substr(at, length));
            at += length;
        }
        CAPTURE(text);
        CHECK(read(stops(strings), pieces) == by_definition(strings, text));
    }
}

TEST_CASE("bad stop rules are refused with their value") {
    const auto refusal = [](const StopRules& rules) {
        const Status status = validate(rules);
        REQUIRE_FALSE(status.ok());
        CHECK(status.error().code == Errc::BadArgument);
        return status.error().what;
    };
    CHECK(refusal(stops({"ok", ""})).find("stop string 1 is empty") != std::string::npos);
    CHECK(refusal(stops(std::vector<std::string>(kStopStringsMax + 1, "x"))).find("17") !=
          std::string::npos);
    CHECK(refusal(stops({std::string(1025, 'x')})).find("1025 bytes") != std::string::npos);
    CHECK(refusal(stops({"\x80"})).find("UTF-8") != std::string::npos);
    CHECK(refusal(stops({"\xe5\xa5"})).find("UTF-8") != std::string::npos);
    CHECK(refusal({.max_tokens = 0}).find("max_tokens is 0") != std::string::npos);
    CHECK(validate(stops(std::vector<std::string>(kStopStringsMax, "x"))).ok());
}
