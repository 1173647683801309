// Rotary position embedding of one head, in plain loops: every pair of dimensions turns by the
// angle that model/rope_table.hpp gives for the row's position. Pure.
#pragma once

#include <span>

#include "model/config.hpp"

namespace paceline::reference {

/// Turns the first 2 * cosines.size() dimensions of `head` in place; the rest stay as they are.
/// `cosines` and `sines` are [pairs], as RopeTable::fill() writes them.
/// Source: Su et al., RoFormer (2021); pairs: rope_pair().
void rope(std::span<float> head,
          RopePairing pairing,
          std::span<const float> cosines,
          std::span<const float> sines);

}  // namespace paceline::reference
