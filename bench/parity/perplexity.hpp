// Perplexity of a model on a text: exp of the mean of -log p(token), p in double.
//
// The text is cut into windows side by side, each starting from an empty context; every token of
// a window but its first is scored. smollm2_parity.py does the same with transformers.
#pragma once

#include <span>

#include "ipc/base/ids.hpp"
#include "model/backend.hpp"

namespace paceline::parity {

struct Perplexity {
    double value = 0.0;
    int scored_tokens = 0;
};

/// Preconditions: the backend is a whole model with slots for `window` positions, window > 1,
/// at least two tokens. Rows go through the model `batch_rows` at a time.
Perplexity perplexity(Backend& backend,
                      std::span<const TokenId> tokens,
                      int window,
                      int batch_rows);

}  // namespace paceline::parity
