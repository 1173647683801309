// EagleSpec: what an EAGLE draft has beside its decoder layer, as passed to a backend.
//
//     x(i) = F [embedding of token i ; feature of i - 1]     the layer's input at position i
//     feature of i = J [states of the target after each of `layers`, at i], or, where they are not
//     known, the layer's output at i. In front of the first token it is zero.
//
// EAGLE-1 and EAGLE-2 read the target's last states before its final norm: `layers` and `join` are
// empty. EAGLE-3 joins the states after three layers.
// Plain values. Matrices are row-major [outputs, inputs].
#pragma once

#include <cstddef>
#include <vector>

namespace paceline {

/// Layers of the target that a feature may join.
inline constexpr std::size_t kFeatureLayersMax = 8;

struct EagleSpec {
    std::vector<float> fuse = {};  // F [dim, 2 dim]
    std::vector<float> join = {};  // J [dim, layers * dim]; empty: the identity
    std::vector<int> layers = {};  // after so many layers, ascending; empty: after all

    /// Rows of [dim] that make one feature.
    [[nodiscard]] std::size_t states() const { return layers.empty() ? 1 : layers.size(); }
};

}  // namespace paceline
