// ScoreReports: tells a callback the log probabilities of a text's tokens: of a prompt's as its
// rows are computed, of an answer's one by one. Used by PlainDecoder.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "actors/decoding/plain/plain_passes.hpp"
#include "ipc/base/ids.hpp"
#include "model/sampling/token_scores.hpp"

namespace paceline {

class ScoreReports {
public:
    /// Of the token at a position of the text.
    using OnScores = std::function<void(Position position, const TokenScores& scores)>;

    void to(OnScores on_scores) { on_scores_ = std::move(on_scores); }

    /// The tokens behind the rows [first, end) of the last pass, as far as the text goes on.
    void prompt(PlainPasses& passes,
                std::span<const TokenId> text,
                Position first,
                Position end,
                std::int32_t top,
                SamplerScratch& scratch);
    /// Before the token after `logits` is drawn, which may change them.
    void read(std::span<const float> logits, std::int32_t top, SamplerScratch& scratch) {
        row_.read(logits, top, scratch);
    }
    /// The token that was drawn after them stands at `position`.
    void report(Position position, TokenId token) const {
        if (on_scores_) on_scores_(position, row_.of(token));
    }

private:
    static constexpr std::size_t kRows = 8;  // of one call of the head

    OnScores on_scores_;  // may be empty
    RowScores row_;
    std::vector<float> logits_;  // [kRows, vocab], once a prompt is scored
};

}  // namespace paceline
