#include "launch/api/answer_events.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

PreparedAnswers prepared(bool stream, bool usage, int choices = 1) {
    PreparedAnswers made;
    made.fields.stream = stream;
    made.fields.include_usage = usage;
    made.fields.n = choices;
    made.seed = 5;
    made.orders.resize(static_cast<std::size_t>(choices));
    made.prompt_tokens = {10};
    return made;
}

ResponseHead head() {
    return {.id = "1", .created = 2, .model = "m", .method = "pearl", .fingerprint = "f"};
}

AnswerPiece piece(const std::string& text, std::size_t tokens) {
    return {.ids = std::vector<TokenId>(tokens), .text = text};
}

AnswerPiece last_piece(const std::string& text, std::size_t tokens, FinishReason finish) {
    AnswerPiece made = piece(text, tokens);
    made.over = true;
    made.stats.finish = finish;
    made.stats.cached_tokens = 4;
    made.stats.verdicts.batches = 3;
    made.stats.verdicts.candidates = 7;
    made.stats.verdicts.accepted = 2;
    made.stats.verdicts.accepted_at[0] = 2;
    return made;
}

std::vector<json> parsed(const std::string& events) {
    std::vector<json> all;
    for (std::size_t at = 0; at < events.size();) {
        const std::size_t end = events.find("\n\n", at);
        REQUIRE(end != std::string::npos);
        const std::string event = events.substr(at, end - at);
        REQUIRE(event.starts_with("data: "));
        if (event != "data: [DONE]") all.push_back(json::parse(event.substr(6)));
        at = end + 2;
    }
    return all;
}

TEST_CASE("events: role, text, reason and usage come in this order") {
    AnswerEvents events{chat_dialect(), head(), prepared(true, true)};
    const std::vector<json> first = parsed(events.add(0, piece("ab", 2)));
    REQUIRE(first.size() == 2);
    CHECK(first[0]["choices"][0]["delta"] == json{{"role", "assistant"}, {"content", ""}});
    CHECK(first[1]["choices"][0]["delta"] == json{{"content", "ab"}});
    CHECK(first[1]["choices"][0]["finish_reason"] == nullptr);
    CHECK(first[1]["object"] == "chat.completion.chunk");
    CHECK(first[1]["id"] == "chatcmpl-1");
    CHECK(first[1]["usage"] == nullptr);
    CHECK(events.add(0, piece("", 1)).empty());
    const std::vector<json> last =
        parsed(events.add(0, last_piece("c", 1, FinishReason::EndToken)));
    REQUIRE(last.size() == 2);
    CHECK(last[1]["choices"][0]["delta"] == json::object());
    CHECK(last[1]["choices"][0]["finish_reason"] == "stop");
    CHECK_FALSE(last[1].contains("paceline"));
    const std::string end = events.end();
    CHECK(end.ends_with(kStreamEnd));
    const json usage = parsed(end).at(0);
    CHECK(usage["choices"] == json::array());
    CHECK(usage["usage"] == json{{"prompt_tokens", 10},
                                 {"completion_tokens", 4},
                                 {"total_tokens", 14},
                                 {"prompt_tokens_details", {{"cached_tokens", 4}}},
                                 {"completion_tokens_details",
                                  {{"reasoning_tokens", 0},
                                   {"accepted_prediction_tokens", 2},
                                   {"rejected_prediction_tokens", 5}}}});
    CHECK(usage["paceline"]["accepted_at"] == json::array({2}));
    CHECK(usage["paceline"]["seed"] == 5);
    CHECK(usage["paceline"]["method"] == "pearl");
}

TEST_CASE("events: without usage the very last chunk has the figures") {
    AnswerEvents events{completion_dialect(), head(), prepared(true, false, 2)};
    const std::vector<json> one =
        parsed(events.add(1, last_piece("x", 1, FinishReason::MaxTokens)));
    REQUIRE(one.size() == 2);
    CHECK(one[0]["choices"][0]["text"] == "x");
    CHECK(one[1]["choices"][0]["index"] == 1);
    CHECK(one[1]["choices"][0]["finish_reason"] == "length");
    CHECK_FALSE(one[1].contains("paceline"));
    CHECK_FALSE(one[1].contains("usage"));
    const std::vector<json> two =
        parsed(events.add(0, last_piece("", 1, FinishReason::StopString)));
    REQUIRE(two.size() == 1);
    CHECK(two[0]["paceline"]["drafted"] == 14);
    CHECK(two[0]["timings"]["draft_n"] == 14);
    CHECK(two[0]["timings"]["prompt_n"] == 6);
    CHECK(two[0]["timings"]["cache_n"] == 4);
    CHECK(two[0]["timings"]["predicted_n"] == 2);
    CHECK(events.end() == kStreamEnd);
}

TEST_CASE("events: a whole body joins the pieces; a prompt counts once for all its answers") {
    AnswerEvents events{chat_dialect(), head(), prepared(false, false, 2)};
    CHECK(events.add(0, piece("a", 1)).empty());
    CHECK(events.add(1, last_piece("b", 1, FinishReason::ContextFull)).empty());
    CHECK(events.add(0, last_piece("\xc3\xa9", 1, FinishReason::EndToken)).empty());
    const json body = json::parse(events.body());
    CHECK(body["object"] == "chat.completion");
    CHECK(body["choices"][0]["message"]["content"] == "a\xc3\xa9");
    CHECK(body["choices"][0]["finish_reason"] == "stop");
    CHECK(body["choices"][1]["message"]["content"] == "b");
    CHECK(body["choices"][1]["finish_reason"] == "length");
    CHECK(body["usage"]["prompt_tokens"] == 10);
    CHECK(body["usage"]["prompt_tokens_details"]["cached_tokens"] == 4);
    CHECK(body["usage"]["completion_tokens"] == 3);
}

TEST_CASE("events: an answer that failed has no reason to stop, and its error is kept") {
    AnswerEvents events{chat_dialect(), head(), prepared(true, false)};
    AnswerPiece failed = last_piece("a", 1, FinishReason::Interrupted);
    failed.status = Error{Errc::PeerGone, "a stage is lost"};
    const std::vector<json> last = parsed(events.add(0, failed));
    REQUIRE(last.size() == 2);
    CHECK(last[1]["choices"][0]["finish_reason"] == nullptr);
    CHECK(events.status().error().what == "a stage is lost");
    const json error =
        parsed(events.failure({.status = 503, .message = "gone", .code = "c"})).at(0);
    CHECK(error["error"] == json{{"message", "gone"},
                                 {"type", "unavailable_error"},
                                 {"param", nullptr},
                                 {"code", "c"}});
    AnswerEvents damaged{chat_dialect(), head(), prepared(false, false)};
    (void)damaged.add(0, last_piece("", 0, FinishReason::Failed));
    CHECK_FALSE(damaged.status());
    AnswerEvents unloaded{chat_dialect(), head(), prepared(false, false)};
    (void)unloaded.add(0, last_piece("", 0, FinishReason::GrammarFailed));
    REQUIRE_FALSE(unloaded.status());
    CHECK(unloaded.status().error().what.find("cannot load the grammar") != std::string::npos);
}

/// The id and the JSON of each event of a stream that can be resumed.
std::vector<std::pair<std::string, json>> parsed_with_ids(const std::string& events) {
    std::vector<std::pair<std::string, json>> all;
    for (std::size_t at = 0; at < events.size();) {
        const std::size_t line = events.find('\n', at);
        const std::size_t end = events.find("\n\n", at);
        REQUIRE(events.substr(at, 4) == "id: ");
        REQUIRE(events.substr(line + 1, 6) == "data: ");
        all.emplace_back(events.substr(at + 4, line - at - 4),
                         json::parse(events.substr(line + 7, end - line - 7)));
        at = end + 2;
    }
    return all;
}

TEST_CASE("events: an id counts the tokens so far, and the end has one more") {
    PreparedAnswers resumable = prepared(true, false);
    resumable.fields.resume = true;
    AnswerEvents events{chat_dialect(), head(), resumable};
    const auto first = parsed_with_ids(events.add(0, piece("ab", 2)));
    REQUIRE(first.size() == 2);
    CHECK(first[0].first == "0");
    CHECK(first[1].first == "2");
    AnswerPiece rest = last_piece("c", 0, FinishReason::EndToken);
    rest.begin = 2;
    const auto last = parsed_with_ids(events.add(0, rest));
    REQUIRE(last.size() == 2);
    CHECK(last[0].first == "3");
    CHECK(last[0].second["choices"][0]["delta"]["content"] == "c");
    CHECK(last[1].first == "3");
}

TEST_CASE("events: a resumed stream has no role, counts all tokens and repeats no text") {
    PreparedAnswers resumable = prepared(true, true);
    resumable.fields.resume = true;
    AnswerEvents events{chat_dialect(), head(), resumable};
    events.begin_at(2);
    AnswerPiece rest = last_piece("c", 0, FinishReason::EndToken);
    rest.begin = 2;
    const auto from_text = parsed_with_ids(events.add(0, rest));
    REQUIRE(from_text.size() == 2);
    CHECK(from_text[0].second["choices"][0]["delta"] == json{{"content", "c"}});
    CHECK(events.end().find("\"completion_tokens\":2,") != std::string::npos);
    AnswerEvents at_end{chat_dialect(), head(), resumable};
    at_end.begin_at(3);
    const auto from_end = parsed_with_ids(at_end.add(0, rest));
    REQUIRE(from_end.size() == 1);
    CHECK(from_end[0].second["choices"][0]["finish_reason"] == "stop");
}

}  // namespace
}  // namespace paceline::serve
