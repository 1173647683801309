// Allocations that fail on demand: this program's operator new, with a countdown.
#pragma once

#include <cstdint>

namespace paceline::testing {

/// From now on `left` more allocations succeed and the next one throws, once; -1: none does.
/// Answers what was set before. For SimOptions::allocations.
std::int64_t set_allocations_left(std::int64_t left);

}  // namespace paceline::testing
