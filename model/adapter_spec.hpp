// AdapterSpec: the weights of an exit's adapter, as passed to a backend (Kangaroo's adapter; FOLD's
// exit module).
//
//     x = h + attn_out(attention(attn_norm(h)))      its own keys, causal, rope like the target's
//     logits = E(out_norm(x))                        E: the target's head, cut to `tokens`
//
// Plain values. Matrices are row-major [outputs, inputs]; q and k rows are paired for rope as the
// target's are.
#pragma once

#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

struct AdapterSpec {
    std::vector<float> attn_norm, q, k, v, attn_out, out_norm;
    int heads = 0;
    int kv_heads = 0;                  // heads % kv_heads == 0
    int head_dim = 0;                  // the target's: its rope turns these heads too
    std::vector<TokenId> tokens = {};  // the short list, ascending; empty: the whole vocabulary
};

}  // namespace paceline
