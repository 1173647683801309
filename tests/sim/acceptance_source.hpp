// A draft of the oracle's text (launch/simulate/oracle_backend.hpp) with a given acceptance at each
// depth: projections with it can be computed by hand.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "actors/draft/draft_source.hpp"
#include "launch/simulate/oracle_backend.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline {

inline constexpr int kOracleVocab = 32;

/// Proposes the oracle's text: the candidate at depth d (from 1) is right with probability
/// right_at_depth[d - 1] if all before it are; the last entry counts for all greater depths.
class AcceptanceSource final : public DraftSource {
public:
    AcceptanceSource(std::vector<double> right_at_depth, std::uint64_t seed)
        : right_{std::move(right_at_depth)}, random_{seed} {}

    [[nodiscard]] DraftCost cost() const override { return DraftCost::Compute; }
    void commit(std::span<const TokenId> tokens) override {
        if (tokens.empty()) return;
        last_ = tokens.back();
        length_ += static_cast<Position>(tokens.size());
    }
    [[nodiscard]] std::vector<TokenId> propose(std::span<const TokenId> path,
                                               std::int32_t gamma,
                                               const CancelToken& /*cancel*/) override {
        std::vector<TokenId> tokens;
        const auto begin = static_cast<std::int32_t>(path.size());
        TokenId before = path.empty() ? last_ : path.back();
        for (std::int32_t depth = begin; depth < begin + gamma; ++depth) {
            const TokenId next = oracle_next(before, length_ - 1 + depth, kOracleVocab);
            before = is_right(static_cast<std::size_t>(depth)) ? next : (next + 1) % kOracleVocab;
            tokens.push_back(before);
        }
        return tokens;
    }

private:
    [[nodiscard]] bool is_right(std::size_t depth) {
        if (right_.empty()) return false;
        const double chance = right_[std::min(depth, right_.size() - 1)];
        const double drawn = static_cast<double>(random_.next() >> 11U) * 0x1.0p-53;
        return drawn < chance;
    }

    std::vector<double> right_;
    SimRandom random_;
    TokenId last_ = 0;
    Position length_ = 0;  // of the text so far
};

}  // namespace paceline
