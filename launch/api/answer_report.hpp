// AnswerReport: what the answers of a request came to, summed: `usage` and the objects `paceline`,
// `timings` (llama.cpp's) and `metrics` (vLLM's) of a response.
//
//     batches        verify batches, one forward pass of the target each
//     drafted        candidate tokens that were verified; accepted: those that became text
//     accepted_at    [i]: how often the candidate at distance i of the root was accepted
//     cached_tokens  of the prompts, found in the KV cache; matched_tokens: equal to what was
//                    cached, whole blocks or not
//
// A prompt counts once for all its answers, as in OpenAI's API. Times of several answers are those
// of the slowest one. Counts are of what the target verified; tokens are those that the client got.
// A plain value; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "actors/decoding/answer.hpp"

namespace paceline::serve {

class AnswerReport {
public:
    /// `prompt_tokens`: of each prompt; each has `answers` answers.
    AnswerReport(const std::vector<std::int32_t>& prompt_tokens,
                 int answers,
                 std::uint64_t seed,
                 std::string method,
                 int gamma);

    void add_tokens(std::size_t count) { completion_tokens_ += static_cast<std::int64_t>(count); }
    /// Of those: of thoughts.
    void add_thought_tokens(std::size_t count) {
        thought_tokens_ += static_cast<std::int64_t>(count);
    }
    /// An answer has ended.
    void add(std::size_t choice, const AnswerStats& stats);

    [[nodiscard]] nlohmann::ordered_json usage() const;
    [[nodiscard]] nlohmann::ordered_json paceline() const;
    /// {"prompt_n", "prompt_ms", ..., "predicted_n", ..., "draft_n", "draft_n_accepted", "cache_n"}
    [[nodiscard]] nlohmann::ordered_json timings() const;
    /// {"speculative_decoding": {...}}
    [[nodiscard]] nlohmann::ordered_json metrics() const;
    [[nodiscard]] std::int64_t cached_tokens() const { return cached_tokens_; }

private:
    int answers_;
    std::uint64_t seed_;
    std::string method_;
    int gamma_;
    std::int64_t prompt_tokens_ = 0;
    std::int64_t completion_tokens_ = 0;
    std::int64_t thought_tokens_ = 0;
    std::int64_t cached_tokens_ = 0;
    std::int64_t matched_tokens_ = 0;
    VerdictTally verdicts_{};
    std::uint64_t replays_ = 0;
    std::uint64_t preemptions_ = 0;
    AnswerStats::Micros prompt_time_{0};
    AnswerStats::Micros answer_time_{0};  // from the end of the prompt to the last token
};

/// "stop" or "length"; nullptr: it did not end by itself.
[[nodiscard]] const char* finish_reason(FinishReason finish);

}  // namespace paceline::serve
