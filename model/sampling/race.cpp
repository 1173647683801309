#include "model/sampling/race.hpp"

#include <limits>

#include "model/sampling/noise_layout.hpp"
#include "model/sampling/token_filter.hpp"

namespace paceline {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

int groups_of(int vocab) {
    return (vocab + noise::kTileTokens - 1) / noise::kTileTokens * noise::kColumns;
}

void make_finite(std::span<float> logits) {
    for (float& logit : logits) {
        if (logit == kInfinity) logit = std::numeric_limits<float>::max();
    }
}

std::optional<DrawArgs> prepare_race(std::span<float> logits,
                                     Position position,
                                     const SamplingParams& params,
                                     SamplerScratch& scratch) {
    const RowKernels& kernels = *scratch.kernels;
    const int vocab = static_cast<int>(logits.size());
    float top = kernels.fold(logits.data(), vocab, scratch.group_max.data());
    if (top == -kInfinity) return std::nullopt;
    if (top == kInfinity) {
        make_finite(logits);
        top = kernels.fold(logits.data(), vocab, scratch.group_max.data());
    }
    const FoldedRow row{
        .logits = logits,
        .group_max = {scratch.group_max.data(), static_cast<std::size_t>(groups_of(vocab))},
        .max_logit = top,
        .inverse_temperature = 1.0f / params.temperature};
    const Cutoff cutoff = find_cutoff(row, params, scratch);
    return DrawArgs{.logits = logits.data(),
                    .vocab = vocab,
                    .group_max = scratch.group_max.data(),
                    .max_logit = top,
                    .inverse_temperature = row.inverse_temperature,
                    .z_min = cutoff.z_min,
                    .logit_min = cutoff.logit_min,
                    .last_id = cutoff.last_id,
                    .seed = params.seed,
                    .position = static_cast<std::uint32_t>(position),
                    .race = scratch.race.data(),
                    .bound = scratch.bound.data()};
}

}  // namespace paceline
