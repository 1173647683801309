// GenerationFields: the fields that chat and completions have in common, as they are given.
//
// What is absent stays absent: defaults depend on the model and are filled in by sampling_of().
// Fields of OpenAI's, vLLM's and llama.cpp's APIs that change the answer and that this server does
// not implement are refused with 501 by name (unsupported_fields.hpp), other unknown fields are
// ignored.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "actors/decoding/speculation_limits.hpp"
#include "launch/api/api_error.hpp"
#include "launch/api/scores/scores_request.hpp"
#include "launch/session/service.hpp"
#include "model/sampling/sampling.hpp"
#include "model/weights/model_file.hpp"

namespace paceline::serve {

inline constexpr int kChoicesMax = 64;  // answers of one request: prompts times n
inline constexpr std::size_t kLogitBiasesMax = 1024;
inline constexpr int kPriorityMax = 1'000'000;

/// As given; nothing: the model's default.
struct GivenSampling {
    std::optional<float> temperature = {}, top_p = {}, min_p = {};
    std::optional<float> repetition_penalty = {}, presence_penalty = {}, frequency_penalty = {};
    std::optional<std::int64_t> top_k = {};
    std::optional<std::int64_t> penalty_window = {};         // -1: all tokens
    std::vector<std::pair<TokenId, float>> logit_bias = {};  // sorted by id, each once
};

struct GenerationFields {
    std::string model = {};  // empty: not given
    bool stream = false;
    bool include_usage = false;
    bool continuous_usage = false;
    int n = 1;
    std::vector<std::string> stop = {};
    std::optional<std::uint64_t> seed = {};
    std::optional<std::int32_t> max_tokens = {};  // 0: the prompt alone
    ScoresRequest scores = {};                    // by the reader of the API
    bool ignore_eos = false;
    std::string cache_salt = {};
    int priority = 0;
    GivenSampling sampling = {};
    SpeculationLimits speculation = {};
    std::string method = {};  // paceline.method; empty: not given
    bool spans = false;       // paceline.spans
    bool resume = false;      // paceline.resume: the stream is kept for a client that comes back
    AnswerDeadlines deadlines = {};
    bool return_tokens = false;                     // of /completion, and the next
    std::vector<std::string> response_fields = {};  // empty: all
};

/// Errors: 400 naming the field, 501.
[[nodiscard]] ApiResult<GenerationFields> generation_fields(const nlohmann::ordered_json& body);

/// How an answer behind `prompt_tokens` tokens is drawn: what is not given is as `defaults` say, or
/// temperature 1. Presence and frequency penalties count the answer alone; a repetition penalty
/// that stands alone counts the prompt too, as it does in transformers and vLLM. With llama.cpp's
/// repeat_last_n all three count that many tokens of prompt and answer.
[[nodiscard]] SamplingParams sampling_of(const GivenSampling& given,
                                         const SamplingDefaults& defaults,
                                         Position prompt_tokens,
                                         std::uint64_t seed);

}  // namespace paceline::serve
