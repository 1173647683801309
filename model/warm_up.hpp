// warm_up(): the first rows of a backend, before anything depends on it.
//
// What is done at first use (pages that are touched, kernels that are loaded, a graph that is
// recorded) is done by the first row; the time of a second one says what a row may take. KV slot 0
// then holds keys that no row sees before they are written again. One call, before the backend has
// other work.
#pragma once

#include <chrono>

#include "model/backend.hpp"

namespace paceline {

/// The time of one row through all layers, and through the final head if there is one. Not for
/// backends from which sub-layers were left out (CpuOptions::skipped).
std::chrono::microseconds warm_up(Backend& backend);

}  // namespace paceline
