// A target without weights and a draft with a given acceptance, for projections: what a pipeline
// would do with models too large for this machine. Time comes from the simulation's cost table; the
// text is a fixed sequence, so nothing is computed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/draft/draft_source.hpp"
#include "model/backend.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline {

inline constexpr int kSyntheticVocab = 32;

/// The token that the synthetic target puts after `token` at `position`.
[[nodiscard]] inline TokenId synthetic_next(TokenId token, Position position) {
    const std::uint64_t mixed = (static_cast<std::uint64_t>(token) + 1) * 0x9e3779b97f4a7c15ULL ^
                                static_cast<std::uint64_t>(position) * 0xbf58476d1ce4e5b9ULL;
    return static_cast<TokenId>((mixed >> 33U) % kSyntheticVocab);
}

/// Layers [first, last) of a target of `layers` layers. Hidden state: token and position.
class SyntheticTarget final : public Backend {
public:
    SyntheticTarget(int layers, int first_layer, int last_layer, std::int32_t kv_slots)
        : first_layer_{first_layer}, last_layer_{last_layer}, kv_slots_{kv_slots} {
        config_.layers = layers;
        config_.dim = 2;
        config_.vocab_size = kSyntheticVocab;
        config_.context_length = kv_slots;
    }

    [[nodiscard]] const ModelConfig& config() const override { return config_; }
    [[nodiscard]] int first_layer() const override { return first_layer_; }
    [[nodiscard]] int last_layer() const override { return last_layer_; }
    [[nodiscard]] std::int32_t kv_slots() const override { return kv_slots_; }

    RunOutcome run_layers(std::span<const Row> rows,
                          HiddenRows states,
                          const CancelToken* cancel) override {
        const std::span<float> hidden = states.host();
        if (cancel != nullptr && cancel->cancelled()) return RunOutcome::Cancelled;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (rows[i].first != 0) continue;
            hidden[2 * i] = static_cast<float>(rows[i].token);
            hidden[2 * i + 1] = static_cast<float>(rows[i].position);
        }
        return RunOutcome::Done;
    }
    void head(HeadId /*id*/, ConstHiddenRows states, int rows, std::span<float> logits) override {
        const std::span<const float> hidden = states.host();
        std::fill(logits.begin(), logits.end(), 0.0F);
        for (int r = 0; r < rows; ++r) {
            const auto row = static_cast<std::size_t>(r);
            const TokenId next = synthetic_next(static_cast<TokenId>(hidden[2 * row]),
                                                static_cast<Position>(hidden[2 * row + 1]));
            logits[row * kSyntheticVocab + static_cast<std::size_t>(next)] = 1.0F;
        }
    }
    [[nodiscard]] MemoryUse memory_use() const override { return {}; }
    [[nodiscard]] std::string equality_class() const override { return "synthetic"; }

private:
    ModelConfig config_;
    int first_layer_;
    int last_layer_;
    std::int32_t kv_slots_;
};

/// Proposes the synthetic target's text: the candidate at depth d (from 1) is right with probability
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
            const TokenId next = synthetic_next(before, length_ - 1 + depth);
            before =
                is_right(static_cast<std::size_t>(depth)) ? next : (next + 1) % kSyntheticVocab;
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
