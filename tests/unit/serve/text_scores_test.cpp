// Log probabilities of the texts of answers that are rows of items.
#include "launch/api/scores/text_scores.hpp"

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launch/api/responses/responses_events.hpp"
#include "launch/load/load_model.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

const Tokenizer& tokenizer() {
    static const OpenedModel model = [] {
        ModelOptions options;
        options.model = PACELINE_FIXTURES "/models/tiny-chat.gguf";
        Result<OpenedModel> opened = open_model(options, Environment{}, {.remarks = false});
        REQUIRE(opened);
        return std::move(opened).value();
    }();
    return model.tokenizer;
}

TokenId token_of(const std::string& text) {
    const std::vector<TokenId> ids = tokenizer().encode(text, SpecialTokens::AsText);
    REQUIRE(ids.size() == 1);
    return ids.front();
}

/// Of token i of an answer.
TokenScores scores_of(std::size_t i) {
    return {.log_prob = -static_cast<float>(i + 1), .rank = 0};
}

/// The tokens of entries as one text.
std::string said(const json& entries) {
    std::string text;
    for (const json& entry : entries) text += entry["token"].get<std::string>();
    return text;
}

TEST_CASE("text scores: a text has those of its tokens, not of what stands in front of it") {
    TextScores scores{tokenizer()};
    const auto push = [&](const std::string& part, std::size_t i = 0) {
        scores.push(token_of(part), scores_of(i), part.size());
    };
    for (const char* part : {">", "\n", "a", "b"}) push(part);
    CHECK(said(scores.take(2, 0)) == "ab");
    CHECK(scores.take(1, 0).empty());
    push("a");
    scores.drop();
    push("\n", 1);
    push("c", 2);
    const json taken = scores.take(2, 0);
    CHECK(said(taken) == "\nc");
    CHECK(taken[1]["logprob"] == -3.0);
    CHECK(taken[1]["top_logprobs"].empty());
}

TEST_CASE("text scores: what is held behind a text comes with the next one") {
    TextScores scores{tokenizer()};
    const auto push = [&](const std::string& part, std::size_t bytes) {
        scores.push(token_of(part), scores_of(0), bytes);
    };
    push("\n", 1);
    push("a", 3);  // as if it were "a\n\n": two bytes are held
    push("b", 1);  // held as well
    CHECK(said(scores.take(2, 3)) == "\na");
    CHECK(said(scores.take(3, 0)) == "b");
    push("a", 0);  // a part of a character, which the next token completes
    push("b", 2);
    CHECK(said(scores.take(2, 0)) == "ab");
}

const std::string kAnswer =
    "<think>\nSo?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n"
    "</tool_call>\nIt <rains>";

PreparedAnswers prepared(bool stream, bool scored) {
    PreparedAnswers made;
    made.fields.stream = stream;
    made.prompt_tokens = {10};
    made.reply = {.tools = ToolFormat::Hermes, .names = {"f"}, .thoughts = true};
    if (scored) made.tokenizer = &tokenizer();
    return made;
}

/// The answer, a token a byte, in pieces of `step` tokens.
std::string events_of(ResponseForm& form, std::size_t step) {
    std::string events = form.begin();
    for (std::size_t at = 0; at < kAnswer.size(); at += step) {
        AnswerPiece piece{.begin = at, .text = kAnswer.substr(at, step)};
        for (std::size_t i = 0; i < piece.text.size(); ++i) {
            piece.ids.push_back(token_of(piece.text.substr(i, 1)));
            piece.text_ends.push_back(i + 1);
            piece.scores.push_back(scores_of(at + i));
        }
        piece.over = at + step >= kAnswer.size();
        piece.stats.finish = FinishReason::EndToken;
        events += form.add(0, piece);
    }
    return events + form.end();
}

TEST_CASE("responses: each text and each delta of it has the log probabilities of its tokens") {
    ResponsesEvents whole{{.id = "1"}, prepared(false, true)};
    (void)events_of(whole, 1000);
    const json output = json::parse(whole.body())["output"];
    REQUIRE(output.size() == 4);
    for (const std::size_t item : {1U, 3U}) {
        const json part = output[item]["content"][0];
        CHECK(said(part["logprobs"]) == part["text"].get<std::string>());
        const std::size_t begin = kAnswer.find(part["text"].get<std::string>());
        for (std::size_t i = 0; i < part["logprobs"].size(); ++i)
            CHECK(part["logprobs"][i]["logprob"] == -static_cast<double>(begin + i + 1));
    }
    // The line break between the call and the text behind it is the text's.
    CHECK(output[3]["content"][0]["text"] == "\nIt <rains>");
    CHECK_FALSE(output[0]["content"][0].contains("logprobs"));
    for (const std::size_t step : {1U, 5U, 1000U}) {
        ResponsesEvents form{{.id = "1"}, prepared(true, true)};
        const std::string events = events_of(form, step);
        std::vector<json> scores(output.size(), json::array());  // by item
        for (std::size_t at = 0; at < events.size();) {
            const std::size_t begin = events.find("data: ", at) + 6;
            const std::size_t end = events.find("\n\n", begin);
            const json data = json::parse(events.substr(begin, end - begin));
            at = end + 2;
            if (data["type"] == "response.output_text.delta") {
                json& own = scores[data["output_index"].get<std::size_t>()];
                CHECK(said(data["logprobs"]) == data["delta"].get<std::string>());
                own.insert(own.end(), data["logprobs"].begin(), data["logprobs"].end());
            }
            if (data["type"] == "response.output_text.done")
                CHECK(data["logprobs"] == scores[data["output_index"].get<std::size_t>()]);
            if (data["type"] == "response.completed")
                CHECK(data["response"]["output"][3]["content"] == output[3]["content"]);
        }
        CHECK(scores[1] == output[1]["content"][0]["logprobs"]);
        CHECK(scores[3] == output[3]["content"][0]["logprobs"]);
    }
}

TEST_CASE("responses: a token that ends a text and begins a call has its log probability there") {
    ResponsesEvents form{{.id = "1"}, prepared(false, true)};
    const std::vector<std::string> parts{"a", "\n", R"(b<tool_call>{"name": "f", "arguments": {)",
                                         "}}</tool_call>", "c"};
    AnswerPiece piece;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        piece.text += parts[i];
        // The form asks for the bytes of a token, not for its text.
        piece.ids.push_back(token_of(parts[i].substr(0, 1)));
        piece.text_ends.push_back(piece.text.size());
        piece.scores.push_back(scores_of(i));
    }
    piece.over = true;
    piece.stats.finish = FinishReason::EndToken;
    (void)form.begin();
    (void)form.add(0, piece);
    (void)form.end();
    const json output = json::parse(form.body())["output"];
    REQUIRE(output.size() == 3);
    const json first = output[0]["content"][0];
    CHECK(first["text"] == "a\nb");
    REQUIRE(first["logprobs"].size() == 3);
    for (std::size_t i = 0; i < 3; ++i)
        CHECK(first["logprobs"][i]["logprob"] == -static_cast<double>(i + 1));
    REQUIRE(output[2]["content"][0]["logprobs"].size() == 1);
    CHECK(output[2]["content"][0]["logprobs"][0]["logprob"] == -5.0);
}

TEST_CASE("responses: without the wish for log probabilities the lists are empty") {
    ResponsesEvents form{{.id = "1"}, prepared(false, false)};
    (void)events_of(form, 7);
    CHECK(json::parse(form.body())["output"][1]["content"][0]["logprobs"] == json::array());
}

}  // namespace
}  // namespace paceline::serve
