#include "launch/api/native_events.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

PreparedAnswers prepared_native(bool stream, bool list = false) {
    PreparedAnswers made;
    made.fields.stream = stream;
    made.fields.stop = {"END"};
    made.fields.max_tokens = 9;
    made.seed = 5;
    made.sampling.seed = 5;
    made.prompt_tokens = {10};
    if (list) made.prompt_tokens.push_back(20);
    made.prompt_is_list = list;
    return made;
}

ResponseHead native_head() {
    return {.id = "1", .created = 2, .model = "m", .method = "pearl", .gamma = 4};
}

AnswerPiece native_piece(const std::string& text, std::vector<TokenId> ids) {
    return {.ids = std::move(ids), .text = text};
}

AnswerPiece native_end(const std::string& text, std::vector<TokenId> ids, FinishReason finish) {
    AnswerPiece made = native_piece(text, std::move(ids));
    made.over = true;
    made.stats.finish = finish;
    made.stats.cached_tokens = 4;
    return made;
}

std::vector<json> native_parsed(const std::string& events) {
    std::vector<json> all;
    for (std::size_t at = 0; at < events.size();) {
        const std::size_t end = events.find("\n\n", at);
        REQUIRE(end != std::string::npos);
        REQUIRE(events.substr(at, 6) == "data: ");
        all.push_back(json::parse(events.substr(at + 6, end - at - 6)));
        at = end + 2;
    }
    return all;
}

TEST_CASE("native events: parts have text and ids, the end says why") {
    NativeEvents events{native_head(), prepared_native(true)};
    const std::vector<json> first = native_parsed(events.add(0, native_piece("ab", {7, 8})));
    REQUIRE(first.size() == 1);
    CHECK(first[0]["content"] == "ab");
    CHECK(first[0]["tokens"] == json::array({7, 8}));
    CHECK(first[0]["stop"] == false);
    CHECK(first[0]["tokens_evaluated"] == 10);
    CHECK(events.add(0, native_piece("", {9})).empty());
    const std::vector<json> last =
        native_parsed(events.add(0, native_end("\n", {3}, FinishReason::StopString)));
    REQUIRE(last.size() == 2);
    CHECK(last[0]["tokens"] == json::array({9, 3}));  // of the event before, which had no text
    CHECK(last[1]["stop"] == true);
    CHECK(last[1]["content"] == "");
    CHECK(last[1]["stop_type"] == "word");
    CHECK(last[1]["stopping_word"] == "END");
    CHECK(last[1]["tokens_predicted"] == 4);
    CHECK(last[1]["tokens_cached"] == 4);
    CHECK(last[1]["has_new_line"] == true);
    CHECK(last[1]["timings"]["predicted_n"] == 4);
    CHECK(last[1]["generation_settings"]["n_predict"] == 9);
    CHECK(last[1]["generation_settings"]["seed"] == 5);
    CHECK(events.end().empty());
}

TEST_CASE("native events: a list of prompts is answered by a list") {
    NativeEvents events{native_head(), prepared_native(false, true)};
    CHECK(events.add(1, native_end("b", {1}, FinishReason::EndToken)).empty());
    CHECK(events.add(0, native_end("a", {1}, FinishReason::MaxTokens)).empty());
    const json body = json::parse(events.body());
    REQUIRE(body.size() == 2);
    CHECK(body[0]["content"] == "a");
    CHECK(body[0]["stop_type"] == "limit");
    CHECK(body[1]["content"] == "b");
    CHECK(body[1]["stop_type"] == "eos");
    CHECK(body[1]["tokens_evaluated"] == 20);
    CHECK(body[1]["tokens"] == json::array());
}

TEST_CASE("native events: fields are chosen by their place") {
    PreparedAnswers chosen = prepared_native(false);
    chosen.fields.response_fields = {"content", "timings/predicted_n", "content/x", "", "a/"};
    NativeEvents events{native_head(), chosen};
    (void)events.add(0, native_end("a", {1}, FinishReason::MaxTokens));
    CHECK(json::parse(events.body()) == json{{"content", "a"}, {"timings/predicted_n", 1}});
}

TEST_CASE("native events: an answer that failed has no end") {
    NativeEvents events{native_head(), prepared_native(true)};
    AnswerPiece failed = native_end("", {}, FinishReason::Interrupted);
    failed.status = Error{Errc::PeerGone, "a stage is lost"};
    CHECK(events.add(0, failed).empty());
    CHECK(events.status().error().what == "a stage is lost");
}

}  // namespace
}  // namespace paceline::serve
