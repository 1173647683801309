// Rows of logits of every unpleasant kind, and parameters at random.
#pragma once

#include <limits>
#include <random>
#include <vector>

#include "model/sampling/sampling.hpp"

namespace paceline::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

enum class RowKind : std::uint8_t { Peaked, Flat, Coarse, Broken, Infinite, Huge, Hopeless };
inline constexpr RowKind kRowKinds[] = {RowKind::Peaked,  RowKind::Flat,     RowKind::Coarse,
                                        RowKind::Broken,  RowKind::Infinite, RowKind::Huge,
                                        RowKind::Hopeless};

inline std::vector<float> make_row(RowKind kind, std::size_t vocab, std::mt19937& random) {
    std::normal_distribution<float> normal(0.0f, 3.5f);
    std::vector<float> row(vocab);
    for (float& logit : row) {
        const std::uint32_t dice = random() % 16;
        switch (kind) {
            case RowKind::Peaked:
                logit = normal(random) + (dice == 0 ? 8.0f : 0.0f);
                break;
            case RowKind::Flat:
                logit = -1.25f;
                break;
            case RowKind::Coarse:
                logit = static_cast<float>(dice / 4);
                break;  // many ties
            case RowKind::Broken:
                logit = dice < 5 ? kNan : dice < 9 ? -kInfinity : normal(random);
                break;
            case RowKind::Infinite:
                logit = dice < 2 ? kInfinity : normal(random);
                break;
            case RowKind::Huge:
                logit = 1e38f * normal(random);
                break;
            case RowKind::Hopeless:
                logit = dice < 8 ? kNan : -kInfinity;
                break;
        }
    }
    return row;
}

inline SamplingParams random_params(std::mt19937& random) {
    constexpr float kTemperatures[] = {0.0f, 1e-6f, 0.01f, 0.8f, 1.0f, 1.7f, 50.0f, 1e6f};
    constexpr int kTopK[] = {0, 0, 1, 2, 40, 300, 5000};
    constexpr float kTopP[] = {1.0f, 1.0f, 0.95f, 0.5f, 1e-6f, 0.9999f};
    constexpr float kMinP[] = {0.0f, 0.0f, 0.05f, 0.9f, 1e-9f};
    SamplingParams params;
    params.temperature = kTemperatures[random() % 8];
    params.top_k = kTopK[random() % 7];
    params.top_p = kTopP[random() % 6];
    params.min_p = kMinP[random() % 5];
    params.seed = (std::uint64_t{random()} << 32) | random();
    if (random() % 3 == 0) {
        params.repetition_penalty = 1.3f;
        params.frequency_penalty = 0.25f;
        params.presence_penalty = -0.5f;
        params.penalty_window = static_cast<int>(random() % 20) - 1;
        params.penalty_begin = static_cast<Position>(random() % 6);
    }
    return params;
}

}  // namespace paceline::testing
