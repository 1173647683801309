// Philox4x32-10: random bits as a pure function of a key and a counter.
//
// No state, no order of draws: the same (key, counter) gives the same four words in every
// process, on every instruction set, after every crash. Salmon, Moraes, Dror, Shaw, "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011. The row kernels hold a vectorised version.
#pragma once

#include <array>
#include <cstdint>

#include "model/sampling/noise_layout.hpp"

namespace paceline {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Four independent, uniformly distributed 32-bit words.
[[nodiscard]] constexpr PhiloxCounter philox(PhiloxCounter x, PhiloxKey key) {
    using namespace noise;
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * x[0];
        const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * x[2];
        x = {static_cast<std::uint32_t>(product1 >> 32) ^ x[1] ^ key[0],
             static_cast<std::uint32_t>(product1),
             static_cast<std::uint32_t>(product0 >> 32) ^ x[3] ^ key[1],
             static_cast<std::uint32_t>(product0)};
        key[0] += kPhiloxWeyl0;
        key[1] += kPhiloxWeyl1;
    }
    return x;
}

}  // namespace paceline
