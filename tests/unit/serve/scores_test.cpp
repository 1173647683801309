#include <limits>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launch/api/answer_events.hpp"
#include "launch/api/scores/scores_json.hpp"
#include "launch/api/scores/scores_request.hpp"
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

template <class Read>
std::string refused(Read read, const json& body) {
    ApiResult<ScoresRequest> scores = read(body);
    return scores ? "accepted" : std::to_string(scores.error().status) + " " + scores.error().param;
}

TEST_CASE("scores: chats ask with two fields, completions with one and the echo") {
    const ScoresRequest chat = chat_scores({{"logprobs", true}, {"top_logprobs", 3}}).value();
    CHECK(chat.scores == ScoreOptions{.answer = true, .prompt = false, .top = 3});
    CHECK_FALSE(chat_scores({{"logprobs", false}, {"top_logprobs", 0}}).value().scores.any());
    const ScoresRequest both = completion_scores({{"logprobs", 1}, {"echo", true}}).value();
    CHECK(both.scores == ScoreOptions{.answer = true, .prompt = true, .top = 1});
    CHECK(both.echo);
    CHECK(completion_scores({{"logprobs", 0}}).value().scores ==
          ScoreOptions{.answer = true, .prompt = false, .top = 0});
    CHECK_FALSE(completion_scores({{"echo", true}}).value().scores.any());
    CHECK_FALSE(completion_scores({{"logprobs", nullptr}}).value().scores.any());
    CHECK(refused(chat_scores, {{"top_logprobs", 2}}) == "400 top_logprobs");
    CHECK(refused(chat_scores, {{"logprobs", true}, {"top_logprobs", 21}}) == "400 top_logprobs");
    CHECK(refused(chat_scores, {{"logprobs", 3}}) == "400 logprobs");
    CHECK(refused(chat_scores, {{"echo", true}}) == "400 echo");
    CHECK(refused(completion_scores, {{"logprobs", 21}}) == "400 logprobs");
    CHECK(refused(completion_scores, {{"echo", 1}}) == "400 echo");
}

TEST_CASE("scores: chats have an entry a token, with the bytes of each") {
    const TokenId a = token_of("a");
    const TokenId b = token_of("b");
    const std::unique_ptr<ChoiceScores> scores = chat_choice_scores(tokenizer());
    CHECK(scores->empty());
    scores->add(a, {.log_prob = -0.5F, .rank = 0, .top = {{a, -0.5F}, {b, -1.25F}}});
    scores->add(b, {.log_prob = -std::numeric_limits<float>::infinity(), .rank = 9});
    const json made = scores->take();
    CHECK(
        made["content"][0] ==
        json{{"token", "a"},
             {"logprob", -0.5},
             {"bytes", json::array({97})},
             {"top_logprobs",
              json::array({{{"token", "a"}, {"logprob", -0.5}, {"bytes", json::array({97})}},
                           {{"token", "b"}, {"logprob", -1.25}, {"bytes", json::array({98})}}})}});
    CHECK(made["content"][1]["logprob"] == kExcludedLogProb);
    CHECK(scores->empty());
}

TEST_CASE("scores: completions have lists, whose offsets go on; the first token is not scored") {
    const TokenId a = token_of("a");
    const TokenId b = token_of("b");
    const std::unique_ptr<ChoiceScores> scores = completion_choice_scores(tokenizer());
    scores->add(a, {});
    scores->add(b, {.log_prob = -2.0F, .rank = 1, .top = {{a, -0.5F}}});
    const json first = scores->take();
    CHECK(first == json{{"tokens", {"a", "b"}},
                        {"token_logprobs", {nullptr, -2.0}},
                        {"top_logprobs", {nullptr, {{"a", -0.5}, {"b", -2.0}}}},
                        {"text_offset", {0, 1}}});
    scores->add(a, {.log_prob = -1.0F, .rank = 0});
    CHECK(scores->take()["text_offset"] == json::array({2}));
}

TEST_CASE("scores: a token that is no text is told from others") {
    const TokenId half = tokenizer().encode("\xc3\xa9", SpecialTokens::AsText).front();
    const std::string bytes{tokenizer().bytes_of(half)};
    CHECK(token_label(tokenizer(), half) == (bytes.size() == 1 ? "bytes:\\xc3" : bytes));
}

PreparedAnswers echoing(bool stream) {
    PreparedAnswers made;
    made.fields.stream = stream;
    made.fields.n = 1;
    made.prompt_tokens = {2};
    made.tokenizer = &tokenizer();
    made.echoed = {{.text = "ab", .ids = {token_of("a"), token_of("b")}}};
    return made;
}

AnswerPiece scored_piece(std::size_t begin, std::size_t count, bool over) {
    AnswerPiece piece{.begin = begin, .over = over};
    for (std::size_t i = 0; i < count; ++i) {
        piece.ids.push_back(token_of("c"));
        piece.text += "c";
        piece.text_ends.push_back(i + 1);
        piece.scores.push_back({.log_prob = -3.0F, .rank = 2, .top = {{token_of("a"), -0.5F}}});
    }
    piece.stats.finish = FinishReason::MaxTokens;
    return piece;
}

const std::vector<TokenScores> kPrompt{{}, {.log_prob = -1.0F, .rank = 1, .top = {}}};

TEST_CASE("completions: an echo begins the text and the lists") {
    AnswerEvents whole{completion_dialect(), {}, echoing(false)};
    whole.add_prompt(0, kPrompt);
    CHECK(whole.add(0, scored_piece(0, 1, true)).empty());
    const json choice = json::parse(whole.body())["choices"][0];
    CHECK(choice["text"] == "abc");
    CHECK(choice["logprobs"]["tokens"] == json::array({"a", "b", "c"}));
    CHECK(choice["logprobs"]["token_logprobs"] == json::array({nullptr, -1.0, -3.0}));
    CHECK(choice["logprobs"]["text_offset"] == json::array({0, 1, 2}));
    AnswerEvents alone{completion_dialect(), {}, echoing(false)};
    alone.add_prompt(0, kPrompt);
    (void)alone.add(0, scored_piece(0, 0, true));
    CHECK(json::parse(alone.body())["choices"][0]["logprobs"]["tokens"].size() == 2);
}

TEST_CASE("completions: a continued stream has the offsets of the whole, and no echo again") {
    AnswerEvents rest{completion_dialect(), {}, echoing(true)};
    rest.begin_at(1);
    rest.add_prompt(0, kPrompt);
    const std::string events = rest.add(0, scored_piece(0, 2, true));
    const json choice = json::parse(events.substr(6, events.find("\n\n") - 6))["choices"][0];
    CHECK(choice["text"] == "c");
    CHECK(choice["logprobs"]["text_offset"] == json::array({3}));
}

}  // namespace
}  // namespace paceline::serve
