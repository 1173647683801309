// ScoreLog: the log probabilities of one request's tokens, from the last segment to the client.
//
//     prompt    positions 1, 2, ...      each once, in order; a replay computes them again, and
//                                        what the client has is passed over
//     answer    from the log's end on    kept until the verdict on these tokens has come
//
// Those of an attempt that has ended never reach the client: the caller fences them by attempt, and
// calls next_attempt().
// Bounded by the tokens of one verdict. Threads: the conductor's loop.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/decoding/plain_decoder.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"
#include "model/sampling/token_scores.hpp"

namespace paceline {

class ScoreLog {
public:
    ScoreLog() = default;
    ScoreLog(const ScoreOptions& wanted, Position prompt_tokens)
        : wanted_{wanted}, prompt_tokens_{prompt_tokens} {}

    /// Scores of the current attempt, whose text ends at `text_end`. Those of the prompt go to
    /// `deliver` at once. Precondition: they have passed check_message().
    /// Errors: Protocol if they were not asked for, or do not continue what came before.
    Status take(const msg::Scores& scores,
                Position text_end,
                const PlainDecoder::OnScores& deliver);
    /// Whether all scores of a verdict of `tokens` tokens are here, if any are wanted; and of the
    /// prompt. Errors: Protocol.
    [[nodiscard]] Status check(std::uint32_t tokens) const;
    /// Those of the verdict that is committed; empty if none are wanted.
    [[nodiscard]] std::vector<TokenScores> take_answer();
    void next_attempt() { answer_.clear(); }
    /// What the stages have to compute from now on.
    [[nodiscard]] ScoreOptions wanted() const;

private:
    [[nodiscard]] bool prompt_done() const {
        return !wanted_.prompt || next_in_prompt_ >= prompt_tokens_;
    }

    ScoreOptions wanted_ = {};
    Position prompt_tokens_ = 0;
    Position next_in_prompt_ = 1;
    std::vector<TokenScores> answer_;  // of the tokens behind the log's end
};

}  // namespace paceline
