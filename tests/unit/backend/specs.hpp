// Heads and adapters at random, of every kind that a backend can be given.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "model/adapter_spec.hpp"
#include "tests/unit/backend/fixture.hpp"

namespace paceline::testing {

/// About a third of the vocabulary, with its last token.
inline std::vector<TokenId> random_list(std::mt19937& rng, int vocab_size) {
    std::vector<TokenId> tokens;
    for (TokenId t = 0; t < vocab_size; ++t) {
        if (rng() % 3 == 0 || t == vocab_size - 1) tokens.push_back(t);
    }
    return tokens;
}

/// Every kind of head there is; transforms are near the identity, so that logits stay of a common
/// size.
inline std::vector<HeadSpec> all_heads(std::mt19937& rng, const ModelConfig& config) {
    const auto n = static_cast<std::size_t>(config.dim);
    std::vector<float> t = normal_numbers(rng, n * n, 0.0f, 0.05f);
    for (std::size_t i = 0; i < n; ++i) t[i * n + i] += 1.0f;
    return {{.transform = t},
            {.transform = t, .norm_first = false},
            {.tokens = random_list(rng, config.vocab_size)},
            {.transform = t, .tokens = random_list(rng, config.vocab_size)},
            {.transform = t, .tokens = {0, config.vocab_size - 1}, .norm_first = false},
            {},
            {.transform = t, .block = HeadBlock::Residual},
            {.transform = t,
             .tokens = random_list(rng, config.vocab_size),
             .block = HeadBlock::Residual}};
}

/// Twice as many query heads as KV heads, of which it has one more than the target.
inline AdapterSpec random_adapter(std::mt19937& rng, const ModelConfig& config) {
    AdapterSpec spec;
    spec.kv_heads = config.kv_heads + 1;
    spec.heads = 2 * spec.kv_heads;
    spec.head_dim = config.head_dim;
    const auto dim = static_cast<std::size_t>(config.dim);
    const auto q_dim = static_cast<std::size_t>(spec.heads * spec.head_dim);
    const auto kv_dim = static_cast<std::size_t>(spec.kv_heads * spec.head_dim);
    const float spread = 1.0f / std::sqrt(static_cast<float>(dim));
    spec.attn_norm = normal_numbers(rng, dim, 1.0f, 0.1f);
    spec.q = normal_numbers(rng, q_dim * dim, 0.0f, spread);
    spec.k = normal_numbers(rng, kv_dim * dim, 0.0f, spread);
    spec.v = normal_numbers(rng, kv_dim * dim, 0.0f, spread);
    spec.attn_out = normal_numbers(rng, dim * q_dim, 0.0f, 0.2f);
    spec.out_norm = normal_numbers(rng, dim, 1.0f, 0.1f);
    for (TokenId t = 1; t < config.vocab_size; t += 1 + static_cast<TokenId>(rng() % 4))
        spec.tokens.push_back(t);
    return spec;
}

}  // namespace paceline::testing
