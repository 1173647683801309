// Matrix times vector, in plain loops: out[o] = sum over i of weights[o, i] * x[i] (+ bias[o]).
//
// Summed in double in the order of the inputs, rounded to float32 once. Pure.
#pragma once

#include <span>

namespace paceline::reference {

/// `weights` is [outputs, inputs], `x` [inputs], `out` [outputs]; `bias` is [outputs] or empty.
/// `out` may not be `x`.
void matmul(std::span<const float> weights,
            std::span<const float> x,
            std::span<const float> bias,
            std::span<float> out);

}  // namespace paceline::reference
