#include "launch/api/generation_fields.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

GenerationFields read(const json& body) {
    ApiResult<GenerationFields> fields = generation_fields(body);
    REQUIRE_MESSAGE(fields, (fields ? "" : fields.error().message));
    return fields.value();
}

/// "status param".
std::string refusal(const json& body) {
    ApiResult<GenerationFields> fields = generation_fields(body);
    if (fields) return "accepted";
    return std::to_string(fields.error().status) + " " + fields.error().param;
}

TEST_CASE("generation fields: an empty request has one answer that is not streamed") {
    const GenerationFields fields = read(json::object());
    CHECK(fields.n == 1);
    CHECK_FALSE(fields.stream);
    CHECK_FALSE(fields.max_tokens);
    CHECK_FALSE(fields.seed);
    CHECK(fields.speculation == SpeculationLimits{});
    CHECK(fields.model.empty());
}

TEST_CASE("generation fields: all of them are read") {
    const GenerationFields fields =
        read({{"model", "m"},
              {"stream", true},
              {"n", 3},
              {"stop", json::array({"a", "b"})},
              {"seed", 7},
              {"max_tokens", 5},
              {"temperature", 0.5},
              {"top_p", 0.25},
              {"top_k", 4},
              {"min_p", 0.125},
              {"ignore_eos", true},
              {"presence_penalty", 1.5},
              {"priority", -2},
              {"frequency_penalty", -1.5},
              {"cache_salt", "s"},
              {"repetition_penalty", 1.25},
              {"logit_bias", {{"9", -100}, {"3", 2.5}}},
              {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}},
              {"paceline",
               {{"speculation", "off"},
                {"gamma", 3},
                {"verify_reach_min", 0.5},
                {"draft_reach_min", 0.25},
                {"confidence_min", 0.125},
                {"method", "plain"}}}});
    CHECK(fields.model == "m");
    CHECK((fields.stream && fields.include_usage && fields.continuous_usage));
    CHECK(fields.n == 3);
    CHECK(fields.stop == std::vector<std::string>{"a", "b"});
    CHECK(fields.seed == 7U);
    CHECK(fields.max_tokens == 5);
    CHECK(fields.ignore_eos);
    CHECK(fields.cache_salt == "s");
    CHECK(fields.priority == -2);
    CHECK(fields.method == "plain");
    CHECK(fields.speculation == SpeculationLimits{.on = false,
                                                  .gamma = 3,
                                                  .verify_reach_min = 0.5F,
                                                  .draft_reach_min = 0.25F,
                                                  .confidence_min = 0.125F});
    const GivenSampling& sampling = fields.sampling;
    CHECK(sampling.temperature == 0.5F);
    CHECK(sampling.top_p == 0.25F);
    CHECK(sampling.top_k == 4);
    CHECK(sampling.min_p == 0.125F);
    CHECK(sampling.presence_penalty == 1.5F);
    CHECK(sampling.frequency_penalty == -1.5F);
    CHECK(sampling.repetition_penalty == 1.25F);
    CHECK(sampling.logit_bias == std::vector<std::pair<TokenId, float>>{{3, 2.5F}, {9, -100.0F}});
}

TEST_CASE("generation fields: null is the same as absent") {
    json body;
    for (const char* name : {"model", "stream", "stream_options", "n", "stop", "seed", "max_tokens",
                             "temperature", "logit_bias", "paceline", "logprobs", "tools"})
        body[name] = nullptr;
    CHECK(read(body).n == 1);
}

TEST_CASE("generation fields: of both names of the limit the newer one counts") {
    CHECK(read({{"max_tokens", 5}, {"max_completion_tokens", 6}}).max_tokens == 6);
    CHECK(read({{"max_completion_tokens", 6}}).max_tokens == 6);
}

TEST_CASE("generation fields: whole numbers may be written as 2.0, others may not") {
    CHECK(read({{"n", 2.0}}).n == 2);
    CHECK(refusal({{"n", 2.5}}) == "400 n");
    CHECK(refusal({{"n", "2"}}) == "400 n");
    CHECK(refusal({{"seed", 1e30}}) == "400 seed");
    CHECK(refusal({{"seed", std::numeric_limits<std::uint64_t>::max()}}) == "400 seed");
    CHECK(read({{"seed", -1}}).seed == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("generation fields: the first error is named, an object's with the object") {
    CHECK(refusal({{"stop", ""}}) == "400 stop");
    CHECK(refusal({{"stop", json::array({"a", 1})}}) == "400 stop");
    CHECK(refusal({{"logit_bias", {{"1", "x"}}}}) == "400 logit_bias");
    CHECK(refusal({{"logit_bias", {{"-1", 1}}}}) == "400 logit_bias");
    CHECK(refusal({{"logit_bias", {{"1", 1}, {"01", 2}}}}) == "400 logit_bias");
    CHECK(refusal({{"paceline", {{"gamma", 33}}}}) == "400 paceline.gamma");
    CHECK(refusal({{"paceline", 3}}) == "400 paceline");
    CHECK(refusal({{"stream_options", json::object()}}) == "400 stream_options");
    CHECK(refusal({{"stream", true}, {"stream_options", {{"include_usage", 1}}}}) ==
          "400 stream_options.include_usage");
}

TEST_CASE("generation fields: what would change the answer and is not implemented is 501") {
    for (const json& body : std::vector<json>{{{"functions", json::array({1})}},
                                              {{"suffix", "x"}},
                                              {{"prompt_logprobs", 1}},
                                              {{"best_of", 2}},
                                              {{"min_tokens", 1}}}) {
        CAPTURE(body.dump());
        CHECK(refusal(body) == "501 " + body.items().begin().key());
    }
    CHECK(refusal({{"logprobs", false},
                   {"tools", json::array()},
                   {"tool_choice", "none"},
                   {"response_format", {{"type", "text"}}},
                   {"best_of", 1},
                   {"unknown", 3}}) == "accepted");
}

TEST_CASE("fields: deadlines are seconds, each of them optional") {
    const json body{{"paceline", {{"deadlines", {{"queue_s", 0.5}, {"total_s", 3600}}}}}};
    const AnswerDeadlines deadlines = generation_fields(body).value().deadlines;
    CHECK(deadlines.queue == std::chrono::milliseconds{500});
    CHECK(deadlines.answer == std::chrono::hours{1});
    CHECK_FALSE(deadlines.gap.has_value());
    CHECK_FALSE(deadlines.first_token.has_value());
    for (const char* name : {"queue_s", "first_token_s", "gap_s", "total_s"}) {
        const std::string param = std::string{"400 paceline.deadlines."} + name;
        CHECK(refusal({{"paceline", {{"deadlines", {{name, 0}}}}}}) == param);
        CHECK(refusal({{"paceline", {{"deadlines", {{name, "1"}}}}}}) == param);
        CHECK(refusal({{"paceline", {{"deadlines", {{name, 86401}}}}}}) == param);
    }
}

TEST_CASE("fields: resumption is for streams") {
    CHECK(refusal({{"paceline", {{"resume", true}}}}) == "400 paceline.resume");
    CHECK(refusal({{"stream", true}, {"paceline", {{"resume", 1}}}}) == "400 paceline.resume");
    CHECK(generation_fields({{"stream", true}, {"paceline", {{"resume", true}}}}).value().resume);
    CHECK_FALSE(generation_fields({{"paceline", {{"resume", false}}}}).value().resume);
}

TEST_CASE("fields: llama.cpp's samplers are refused unless they ask for nothing") {
    for (const json& body : std::vector<json>{{{"mirostat", 1}},
                                              {{"typical_p", 0.9}},
                                              {{"top_n_sigma", 1.0}},
                                              {{"samplers", {"top_k"}}},
                                              {{"t_max_predict_ms", 5}}}) {
        CAPTURE(body.dump());
        CHECK(refusal(body) == "501 " + body.items().begin().key());
    }
    CHECK(refusal({{"mirostat", 0},
                   {"typical_p", 1.0},
                   {"top_n_sigma", -1.0},
                   {"dynatemp_range", 0.0},
                   {"samplers", json::array()},
                   {"t_max_predict_ms", -1}}) == "accepted");
}

TEST_CASE("sampling: what is absent is as the model says, else temperature 1") {
    const SamplingParams bare = sampling_of({}, {}, 10, 5);
    CHECK(bare.temperature == 1.0F);
    CHECK(bare.top_k == 0);
    CHECK(bare.top_p == 1.0F);
    CHECK(bare.repetition_penalty == 1.0F);
    CHECK(bare.seed == 5U);
    SamplingDefaults stated;
    stated.temperature = 0.25F;
    stated.top_k = 7;
    stated.top_p = 0.5F;
    const SamplingParams model = sampling_of({.top_p = 0.75F}, stated, 10, 5);
    CHECK(model.temperature == 0.25F);
    CHECK(model.top_k == 7);
    CHECK(model.top_p == 0.75F);
    CHECK(sampling_of({.top_k = -1}, stated, 10, 5).top_k == 0);
}

TEST_CASE(
    "sampling: OpenAI's penalties count the answer alone, a repetition penalty the prompt too") {
    const SamplingParams presence = sampling_of({.presence_penalty = 1.0F}, {}, 10, 5);
    CHECK(presence.penalty_begin == 10);
    CHECK(presence.penalty_window == -1);
    const SamplingParams repetition = sampling_of({.repetition_penalty = 1.5F}, {}, 10, 5);
    CHECK(repetition.penalty_begin == 0);
    CHECK(repetition.penalty_window == -1);
    CHECK(sampling_of({.repetition_penalty = 1.5F, .frequency_penalty = 1.0F}, {}, 10, 5)
              .penalty_begin == 10);
    const SamplingParams window =
        sampling_of({.frequency_penalty = 1.0F, .penalty_window = 8}, {}, 10, 5);
    CHECK(window.penalty_begin == 0);
    CHECK(window.penalty_window == 8);
}

}  // namespace
}  // namespace paceline::serve
