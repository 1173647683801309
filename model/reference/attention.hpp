// Attention of one row over its visible keys, in plain loops.
//
// Grouped queries: query head h reads KV head h / (heads / kv_heads). Scores, softmax and the
// weighted sum are in double, in the order of the positions. Pure.
#pragma once

#include <span>

namespace paceline::reference {

struct AttentionShape {
    int heads = 0;
    int kv_heads = 0;  // heads % kv_heads == 0
    int head_dim = 0;
};

/// `query` and `out` are [heads, head_dim]. `keys` and `values` have one pointer per visible
/// position, in the order of the positions and the row's own last, each to [kv_heads, head_dim].
/// Scores are scaled by 1 / sqrt(head_dim).
/// Source: Ainslie et al., GQA (2023).
void attention(const AttentionShape& shape,
               std::span<const float> query,
               std::span<const float* const> keys,
               std::span<const float* const> values,
               std::span<float> out);

}  // namespace paceline::reference
