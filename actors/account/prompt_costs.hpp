// PromptCosts: what a row of a prompt adds to a batch that decodes other requests, by the tokens
// before it, as measured in this pipeline.
//
// A row deep in a long prompt sees thousands of keys and may cost several times what the first rows
// do; so costs are kept by powers of two of the context. A context that was not measured takes the
// nearest one. Microseconds. Not thread-safe. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "actors/account/robust_mean.hpp"

namespace paceline {

/// The rows of prompts in a batch.
struct PromptRows {
    std::uint32_t rows = 0;
    std::uint64_t context = 0;  // tokens before them, on average
    /// Whether the time of the batch is theirs: no batch of prompts alone is on its way before it,
    /// and all layers run for all of them.
    bool teaches = true;
};

class PromptCosts {
public:
    /// The batch took so much longer than its verify rows alone would have; more than 0.
    void learn(const PromptRows& prompts, double extra_us);
    /// Of a row behind so many tokens; 0: nothing is known.
    [[nodiscard]] double row_us(std::uint64_t context) const;

private:
    static constexpr std::size_t kSizes = 32;
    [[nodiscard]] static std::size_t size_of(std::uint64_t context);

    std::array<RobustMean, kSizes> by_context_ = {};
};

}  // namespace paceline
