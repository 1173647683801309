// From SamplingParams to a row that the device draws. For the host, C++20.
#pragma once

#include "ipc/base/ids.hpp"
#include "model/kernels/cuda/sampling/sample.hpp"
#include "model/sampling/fixed_math.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline::cuda {

/// Whether the device draws such rows: the others need the text before them, and stay on the host.
[[nodiscard]] inline bool supported(const SamplingParams& params) {
    return !params.has_penalties() && params.logit_bias.empty();
}

/// `params` are supported() and have passed validate().
[[nodiscard]] inline DrawRow draw_row(const SamplingParams& params,
                                      Position position,
                                      int logits_row) {
    DrawRow row;
    row.seed = params.seed;
    row.position = position;
    row.logits_row = logits_row;
    row.inverse_temperature = params.greedy() ? 0.0f : 1.0f / params.temperature;
    row.top_k = params.top_k;
    row.top_p = params.top_p;
    if (params.min_p > 0.0f) row.z_min = fixed_log(params.min_p);
    return row;
}

}  // namespace paceline::cuda
