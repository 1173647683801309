// JacobiSource: Jacobi decoding as a draft source: a chain of guesses, each corrected in every
// round by what the target says after the guess before it. Needs no model and no training.
//
//     text ... r | y1  y2  y3  y4            all observed; z(i): the target's token after y(i)
//                  |   |   |   |
//     accepted: y1, then the target's own t: y1 and y2's place are committed
//     text ... y1 t |  z2  z3  z4  z4        z(i-1) for y(i); the tail repeats the last one
//
// At first the guesses are the last tokens of the prompt. Without an own token (its message was
// lost, or the row not verified) a guess stays what it was.
// Per request; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "actors/draft/draft_source.hpp"
#include "actors/draft/observed_rows.hpp"

namespace paceline {

class JacobiSource final : public DraftSource {
public:
    /// `guesses`: the chain's length, 1 .. kGammaMax.
    explicit JacobiSource(std::int32_t guesses) : count_{static_cast<std::size_t>(guesses)} {}

    [[nodiscard]] DraftCost cost() const override { return DraftCost::Instant; }
    void commit(std::span<const TokenId> tokens) override;
    [[nodiscard]] std::vector<TokenId> propose(std::span<const TokenId> path,
                                               std::int32_t gamma,
                                               const CancelToken& cancel) override;
    [[nodiscard]] std::vector<SourceNode> grow(std::span<const TokenId> path,
                                               std::int32_t depth,
                                               const CancelToken& cancel) override;
    void observe(std::span<const msg::OwnToken> own) override { rows_.take(own); }
    [[nodiscard]] bool observes() const override { return true; }
    [[nodiscard]] msg::Origin origin() const override { return msg::Origin::Lookup; }

    [[nodiscard]] std::span<const TokenId> guesses() const { return guesses_; }

private:
    [[nodiscard]] std::span<const TokenId> behind(std::span<const TokenId> path) const;

    std::size_t count_;
    std::vector<TokenId> guesses_;  // empty before the prompt is known
    ObservedRows rows_;
};

}  // namespace paceline
