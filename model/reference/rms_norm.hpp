// RMS norm, in plain loops: out[i] = x[i] / sqrt(mean(x^2) + epsilon) * weight[i].
//
// Sums and products in double, one rounding to float32 at the end. Pure.
#pragma once

#include <span>

namespace paceline::reference {

/// `x`, `weight` and `out` are [n], n > 0; `out` may be `x`.
/// Source: Zhang and Sennrich, Root Mean Square Layer Normalization (2019).
void rms_norm(std::span<const float> x,
              std::span<const float> weight,
              float epsilon,
              std::span<float> out);

}  // namespace paceline::reference
