// SwiGLU, in plain loops: out[i] = gate[i] * sigmoid(gate[i]) * up[i]. Pure.
#pragma once

#include <span>

namespace paceline::reference {

/// `gate`, `up` and `out` are [n]; `out` may be one of the others. In double, rounded once.
/// Source: Shazeer, GLU Variants Improve Transformer (2020).
void swiglu(std::span<const float> gate, std::span<const float> up, std::span<float> out);

}  // namespace paceline::reference
