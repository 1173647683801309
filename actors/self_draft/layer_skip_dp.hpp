// LayerSkipDp: CLaSp's choice of the layers that a draft skips, a dynamic programme over hidden
// states (CLaSp, section 3.3; indices, arg max and backtracking corrected).
//
//     h[i]     the residual after i layers of the whole model, at the last accepted token
//     g[i][j]  the residual after i layers of which j were skipped, as close to h[i] as was found
//
//     g[i][j] = the one of   f(i-1, g[i-1][j])   layer i-1 kept
//                            g[i-1][j-1]         layer i-1 skipped
//               with the greater cosine to h[i] (kept, if equal); which one is stored as a bit, and
//               the set is read back from (layers, skip)
//
// All j of one i are rows of one call of the model; j that no longer lead to `skip` are left out,
// and so is j = 0, which is h[i] itself. Layers below keep_first and the last keep_last are kept.
//
// The result is approximate: g[i][j] is the better of two continuations, not the best of all sets
// of j layers. The set is optimal if a state that is closer to h[i] than another stays closer in
// all later layers; a transformer's layers keep that order roughly (the paper's approximate Markov
// property). Pure apart from the layers that it is given. Not thread-safe.
#pragma once

#include <functional>
#include <span>

#include "model/skip_set.hpp"

namespace paceline {

struct LayerSkipDpOptions {
    int layers = 0;
    int skip = 0;  // whole layers, at most layers - keep_first - keep_last
    int keep_first = 1;
    int keep_last = 1;
};

/// Runs one layer on residuals [rows, dim] in place: each at the position of the stack, seeing the
/// keys before it and its own alone. At least one row. False: it was cancelled.
using RunLayer = std::function<bool(int layer, std::span<float> rows)>;

struct LayerSkipDpResult {
    SkipSet set;
    double cosine = 0.0;  // of g[layers][skip] to h[layers]
    bool done = false;    // false: cancelled, nothing else is set
};

/// `stack` is [layers + 1, dim]: h[0] .. h[layers], before the final norm; h[0] is not read if a
/// first layer is kept. `run` is called for each layer at most once, in their order; for none if
/// nothing is to be skipped.
[[nodiscard]] LayerSkipDpResult choose_layers(std::span<const float> stack,
                                              const LayerSkipDpOptions& options,
                                              const RunLayer& run);

/// Of the angle between two residuals; 0 where one has no length.
[[nodiscard]] double cosine(std::span<const float> a, std::span<const float> b);

}  // namespace paceline
