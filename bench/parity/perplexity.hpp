// Perplexity of a model on a text: exp of the mean of -log p(token), p in double.
//
// The text is cut into windows side by side, each starting from an empty context; every token of
// a window but its first is scored. smollm2_parity.py does the same with transformers.
#pragma once

#include <span>
#include <vector>

#include "ipc/base/ids.hpp"
#include "model/backend.hpp"

namespace paceline::parity {

struct Perplexity {
    std::vector<double> losses;  // -log p of each scored token
    [[nodiscard]] double value() const;
};

/// How much larger one perplexity is than another of the same tokens, as a share of it, and the
/// standard error of that: tokens are compared one by one, so what they have in common falls out.
struct PerplexityRatio {
    double more = 0.0;
    double error = 0.0;
};
/// Preconditions: the same tokens, two at least.
[[nodiscard]] PerplexityRatio compare(const Perplexity& one, const Perplexity& other);

/// Preconditions: the backend is a whole model with slots for `window` positions, window > 1,
/// at least two tokens. Rows go through the model `batch_rows` at a time.
Perplexity perplexity(Backend& backend,
                      std::span<const TokenId> tokens,
                      int window,
                      int batch_rows);

}  // namespace paceline::parity
