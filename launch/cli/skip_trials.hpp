// SkipTrials: measures how often a model without some of its sub-layers predicts the model's own
// answers.
//
//     prepare()         the answers: prompts, decoded greedily; their keys stay in the cache
//     matchness()       the share of answer tokens that a skip set predicts, window by window
//                       (self_draft/window_match.hpp)
//     cost()            of a drafted token, counted in weights
//     expected_gain()   what a draft of that quality and cost gains
//
// Deterministic: no time is measured, so two machines find the same set (a search for the measured
// tokens/s finds another one on every machine).
// Borrows the backend, whose cache must have slots(). One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "actors/decoding/head_candidates.hpp"
#include "actors/self_draft/window_match.hpp"
#include "ipc/base/result.hpp"
#include "model/backend.hpp"
#include "model/skip_set.hpp"

namespace paceline {

struct SkipTrialOptions {
    int tokens = 32;  // of each answer
    int window = 8;   // tokens that are drafted from one place
};

/// Of a draft that is right with probability `matchness` at each step and costs `cost` of a target
/// pass.
struct ExpectedGain {
    int length = 0;  // of the chains that gain most
    double speed_up = 1.0;
};
[[nodiscard]] ExpectedGain expected_gain(double matchness, double cost, int length_max);

class SkipTrials {
public:
    SkipTrials(Backend& backend, SkipTrialOptions options);

    /// KV slots for prompts of these lengths.
    [[nodiscard]] static std::int32_t slots(std::span<const std::vector<TokenId>> prompts,
                                            const SkipTrialOptions& options);
    /// Errors: BadArgument if no answer has a token to predict.
    [[nodiscard]] Status prepare(std::span<const std::vector<TokenId>> prompts,
                                 std::span<const TokenId> end_tokens);
    [[nodiscard]] double matchness(const SkipSet& set);
    /// Weights that a drafted token reads over those of a target pass.
    [[nodiscard]] double cost(const SkipSet& set) const;
    /// Tokens that matchness() compares.
    [[nodiscard]] int compared() const { return compared_; }

private:
    struct Text {
        std::vector<TokenId> tokens = {};
        std::size_t answer = 0;  // where it begins
        std::vector<KvSlot> slots = {};
    };
    [[nodiscard]] TokenId next_token(ConstHiddenRows hidden, Position position);
    void feed(const Text& text, std::size_t begin, std::size_t end);

    Backend& backend_;
    SkipTrialOptions options_;
    HeadCandidates candidates_;
    WindowMatch match_;
    SamplingParams greedy_ = {};
    std::vector<Text> texts_;
    std::vector<KvSlot> scratch_;
    std::vector<Row> rows_;
    RowMemory hidden_;
    int compared_ = 0;
};

}  // namespace paceline
