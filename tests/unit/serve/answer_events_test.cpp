#include "launch/api/answer_events.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using nlohmann::json;

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
    CHECK(usage["usage"] ==
          json{{"prompt_tokens", 10},
               {"completion_tokens", 4},
               {"total_tokens", 14},
               {"prompt_tokens_details", {{"cached_tokens", 4}}},
               {"completion_tokens_details",
                {{"accepted_prediction_tokens", 2}, {"rejected_prediction_tokens", 5}}}});
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
        parsed(AnswerEvents::error_event({.status = 503, .message = "gone", .code = "c"})).at(0);
    CHECK(error["error"] == json{{"message", "gone"},
                                 {"type", "unavailable_error"},
                                 {"param", nullptr},
                                 {"code", "c"}});
    AnswerEvents damaged{chat_dialect(), head(), prepared(false, false)};
    (void)damaged.add(0, last_piece("", 0, FinishReason::Failed));
    CHECK_FALSE(damaged.status());
}

}  // namespace
}  // namespace paceline::serve
