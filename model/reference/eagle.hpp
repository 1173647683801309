// An EAGLE draft (model/eagle_spec.hpp) position by position, in plain loops: the reference of
// model/eagle for tests.
//
// The decoder layer is a ReferenceBackend's; F and J are reference::matmul. One row runs at a time,
// position p in KV slot p, so nothing is said of steps, trees or slots here.
#pragma once

#include <span>
#include <vector>

#include "ipc/base/ids.hpp"
#include "model/eagle_spec.hpp"
#include "model/reference/reference_backend.hpp"

namespace paceline::reference {

/// The layer's outputs [tokens, dim] for a text. `states[i]`: of the target at position i, as many
/// numbers as J reads, or empty: the output at i is its feature.
/// Preconditions: `layer` has all layers of its file, from 0, and a slot for each token.
[[nodiscard]] std::vector<float> eagle_outputs(ReferenceBackend& layer,
                                               const EagleSpec& spec,
                                               std::span<const TokenId> tokens,
                                               std::span<const std::vector<float>> states);

}  // namespace paceline::reference
