// The noise of the coupled draw as the plain function gumbel(seed, position, token): what the
// sampler and its row kernels must compute. Pure.
//
// Gumbel noise is -log of an exponential draw E, and the 16 draws of a group (noise_layout.hpp)
// are made as a race: the smallest of 16 independent exponentials is itself exponential with
// rate 16, each member is the first with probability 1/16, and, the exponential having no memory,
// every other one is the first plus a fresh exponential. So the noise of all tokens is independent
// and exactly Gumbel (up to its 31 random bits), while one word bounds that of 16 tokens: a
// sampler computes 1/16 of the noise, and the bounds show that the remaining tokens cannot win.
//
//     race = exponential(word of the group) / 16        first = 4 bits of the group
//     E    = race                          for the group's first member
//            race + exponential(own word)  for the others
//     g    = -log(E), in [kGumbelMin, kGumbelMax]
#pragma once

#include <cstdint>

#include "ipc/base/ids.hpp"
#include "model/sampling/counter_rng.hpp"
#include "model/sampling/fixed_math.hpp"
#include "model/sampling/noise_layout.hpp"

namespace paceline {

namespace noise {
// The largest noise is -log of the smallest possible race, 2^-36: 36 log 2 = 24.953.
inline constexpr float kGumbelMax = 25.0f;
// The smallest is -log(22.19 / 16 + 22.19) = -3.161.
inline constexpr float kGumbelMin = -3.2f;
}  // namespace noise

/// The noise of one token at one position; token >= 0.
[[nodiscard]] inline float gumbel(std::uint64_t seed, Position position, TokenId token) {
    using namespace noise;
    const PhiloxKey key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
    const auto at = static_cast<std::uint32_t>(position);
    const auto id = static_cast<std::uint32_t>(token);
    const std::uint32_t tile = id / kTileTokens;
    const std::uint32_t column = id % kColumns;
    const std::uint32_t member = id % kTileTokens / kColumns;

    const std::uint32_t block = kColumns * (tile / kTilesPerBlock) + column;
    const std::uint32_t race_word = philox({block, at, kUseRace, 0}, key)[tile % kTilesPerBlock];
    const float race = exponential_of(race_word) * (1.0f / kMembers);
    const std::uint32_t group = kColumns * tile + column;
    const std::uint32_t first = philox({group, at, kUsePick, 0}, key)[0] >> 28;
    if (member == first) return -fixed_log(race);
    return -fixed_log(race + exponential_of(philox({id, at, kUseRest, 0}, key)[0]));
}

}  // namespace paceline
