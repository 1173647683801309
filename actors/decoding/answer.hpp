// Answer: the tokens of one answer, and AnswerStats: its verdicts, times and the reason of its end.
// Written by PlainDecoder and the conductor; read by session, chat, check, simulate and --stats.
//
// The statistics are separate from the telemetry of runtime/observe, which has totals per process:
// those of one answer cannot be derived from totals while other requests are decoded, and must
// outlive the stages. The verdicts of a run are the sum over its answers; what its processes did is
// in their telemetry.
// Plain values; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"
#include "model/sampling/token_scores.hpp"

namespace paceline {

/// Of the verdicts that were committed.
struct VerdictTally {
    std::int64_t batches = 0;     // parts of verify batches that were verified
    std::int64_t alone = 0;       // of them, those of the root alone
    std::int64_t drafts = 0;      // of them, those that held a candidate
    std::int64_t candidates = 0;  // rows of the batches but for their roots
    std::int64_t accepted = 0;    // candidates that were emitted: cut at an end token
    std::int64_t emitted = 0;
    std::array<std::int64_t, kGammaMax> accepted_at{};       // [i]: drafts whose candidate i stood
    std::array<std::int64_t, kVerifyRowsMax + 1> by_rows{};  // [n]: batches of n rows

    void add(const msg::Verdict& verdict);
    void add(const VerdictTally& other);
    /// 1 + accepted / drafts; 1 without any.
    [[nodiscard]] double mean_acceptance_length() const;
    /// accepted_at[i] / drafts, for as many i as a candidate was ever accepted at.
    [[nodiscard]] std::vector<double> rate_by_position() const;
};

struct AnswerStats {
    using Micros = std::chrono::microseconds;

    // Rows of the prefill: what was not in the KV cache yet; those done if it was cancelled.
    std::int32_t prompt_tokens = 0;
    std::int32_t generated_tokens = 0;  // as given to on_token
    std::int32_t cached_tokens = 0;     // of the prompt, found in the KV cache
    std::int32_t matched_tokens = 0;  // it had in common with what was cached, whole blocks or not
    VerdictTally verdicts{};          // empty where nothing is speculated
    std::uint32_t replays = 0;        // attempts begun because a stage was lost
    std::uint32_t preemptions = 0;    // attempts ended because KV pages ran short
    // Times of one clock; 0: the event did not happen.
    Micros begun{0};
    // The logits of the first token were there (in a pipeline as first_token), or the prefill was
    // cancelled.
    Micros prefilled{0};
    Micros first_token{0};
    Micros last_token{0};
    FinishReason finish = FinishReason::None;

    [[nodiscard]] Micros prefill_time() const { return std::max(prefilled - begun, Micros{0}); }
    [[nodiscard]] Micros time_to_first() const { return std::max(first_token - begun, Micros{0}); }
    [[nodiscard]] Micros decode_time() const { return last_token - first_token; }
    /// Tokens/s after the first one; 0 for fewer than two, and where one batch brought them all.
    [[nodiscard]] double decode_rate() const;
};

struct Answer {
    std::vector<TokenId> ids = {};  // as generated; an end token is the last of them
    // If the request wants them: of each token; of each of the prompt's, the first is not scored.
    std::vector<TokenScores> scores = {};
    std::vector<TokenScores> prompt_scores = {};
    AnswerStats stats{};
    Status status{};  // an error: the answer is not complete

    /// Of the next token: of the prompt, or of the answer.
    void add_scores(bool of_prompt, const TokenScores& of_token) {
        if (of_prompt && prompt_scores.empty()) prompt_scores.emplace_back();
        (of_prompt ? prompt_scores : scores).push_back(of_token);
    }
};

}  // namespace paceline
