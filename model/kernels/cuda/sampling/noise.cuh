// The coupled noise and its arithmetic on the device: the counterpart of model/sampling/.
//
// Philox of counter_rng.hpp, logarithm, exponentials and weights of fixed_math.hpp, the words of
// noise_layout.hpp: the same IEEE operations in the same order, so the same bits. This holds while
// nothing contracts a * b + c (--fmad=false), divisions are exact (-prec-div=true, the default)
// and denormals are kept (-ftz=false, the default). For .cu files. Pure.
#pragma once

#include <cstdint>

#include "model/kernels/cuda/device.cuh"
#include "model/sampling/noise_layout.hpp"

namespace paceline::cuda {

struct NoiseWords {
    std::uint32_t word[4];
};

/// What all tokens of a draw share.
struct NoiseKey {
    std::uint32_t low;   // of the seed
    std::uint32_t high;  // of the seed
    std::uint32_t position;
};

/// Philox4x32-10 of the counter {index, position, use, 0}.
PACE_DEVICE NoiseWords philox(std::uint32_t index, std::uint32_t use, const NoiseKey& noise) {
    NoiseWords x{{index, noise.position, use, 0}};
    std::uint32_t key0 = noise.low;
    std::uint32_t key1 = noise.high;
    for (int round = 0; round < noise::kPhiloxRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{noise::kPhiloxMultiplier0} * x.word[0];
        const std::uint64_t product1 = std::uint64_t{noise::kPhiloxMultiplier1} * x.word[2];
        x = {{static_cast<std::uint32_t>(product1 >> 32) ^ x.word[1] ^ key0,
              static_cast<std::uint32_t>(product1),
              static_cast<std::uint32_t>(product0 >> 32) ^ x.word[3] ^ key1,
              static_cast<std::uint32_t>(product0)}};
        key0 += noise::kPhiloxWeyl0;
        key1 += noise::kPhiloxWeyl1;
    }
    return x;
}

/// log(2^exponent * (1 + f)) for 1 + f in [sqrt 1/2, sqrt 2).
PACE_DEVICE float fixed_log_parts(float f, std::int32_t exponent) {
    const float s = f / (2.0f + f);
    const float s2 = s * s;
    const float tail = noise::kLog7 + s2 * noise::kLog9;
    const float series = s2 * (noise::kLog3 + s2 * (noise::kLog5 + s2 * tail));
    return static_cast<float>(exponent) * noise::kLn2 + s * (2.0f + series);
}

/// Natural logarithm of a positive normal number.
PACE_DEVICE float fixed_log(float x) {
    const std::uint32_t bits = bits_of(x);
    const std::int32_t exponent = static_cast<std::int32_t>(bits - noise::kSqrtHalfBits) >> 23;
    const float mantissa = float_of(bits - (static_cast<std::uint32_t>(exponent) << 23));
    return fixed_log_parts(mantissa - 1.0f, exponent);
}

/// A draw of the exponential distribution from the upper 31 bits of a word.
PACE_DEVICE float exponential_of(std::uint32_t word) {
    const auto k = static_cast<std::int32_t>(word >> 1);
    if (k >= noise::kNearOne) {
        const auto complement = static_cast<float>(0x7FFFFFFF - k);
        return -fixed_log_parts(-((complement + 0.5f) * noise::kTwoToMinus31), 0);
    }
    return -fixed_log((static_cast<float>(k) + 0.5f) * noise::kTwoToMinus31);
}

/// exp(z) for z <= 0 in units of 2^-30, cut off; 0 for NaN.
PACE_DEVICE std::uint32_t weight_of(float z) {
    if (!(z > noise::kWeightZero)) return 0;
    const float n = (z * noise::kLog2E + noise::kRounder) - noise::kRounder;
    const float r = (z - n * noise::kLn2High) - n * noise::kLn2Low;
    const float high = noise::kExp4 + r * (noise::kExp5 + r * noise::kExp6);
    const float value = 1.0f + r * (1.0f + r * (0.5f + r * (noise::kExp3 + r * high)));
    const std::int32_t exponent = static_cast<std::int32_t>(n) + (127 + noise::kWeightBits);
    const float scale = float_of(static_cast<std::uint32_t>(exponent) << 23);
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(value * scale));
}

/// fixed_exp() of z; what is below kExpZero, or NaN, counts as kExpZero, as in the row kernels.
PACE_DEVICE float clamped_exp(float z) {
    const float safe = z > noise::kExpZero ? z : noise::kExpZero;
    const float shifted = safe * noise::kLog2E + noise::kRounder;  // its low bits: the exponent
    const float n = shifted - noise::kRounder;
    const float r = (safe - n * noise::kLn2High) - n * noise::kLn2Low;
    const float high = noise::kExp3 + r * (noise::kExp4 + r * noise::kExp5);
    const float value = 1.0f + r * (1.0f + r * (0.5f + r * high));
    return float_of(bits_of(value) + (bits_of(shifted) << 23));
}

/// exp(z) for z <= 0; 0 from -86 down, and for NaN.
PACE_DEVICE float fixed_exp(float z) {
    return z > noise::kExpZero ? clamped_exp(z) : 0.0f;
}

/// When the first token of a group arrives.
PACE_DEVICE float race_of_group(int group, const NoiseKey& noise) {
    const int tile = group / noise::kColumns;
    const int block = noise::kColumns * (tile / noise::kTilesPerBlock) + group % noise::kColumns;
    const NoiseWords words = philox(static_cast<std::uint32_t>(block), noise::kUseRace, noise);
    std::uint32_t word = words.word[0];
    for (int i = 1; i < noise::kTilesPerBlock; ++i) {  // an index would put them into memory
        if (tile % noise::kTilesPerBlock == i) word = words.word[i];
    }
    return exponential_of(word) * (1.0f / noise::kMembers);
}

/// The noise of a member of a group whose first token arrives at `race`.
PACE_DEVICE float gumbel_of_member(int group, int member, float race, const NoiseKey& noise) {
    const NoiseWords pick = philox(static_cast<std::uint32_t>(group), noise::kUsePick, noise);
    if (static_cast<std::uint32_t>(member) == pick.word[0] >> 28) return -fixed_log(race);
    const int token = noise::kTileTokens * (group / noise::kColumns) + noise::kColumns * member +
                      group % noise::kColumns;
    const NoiseWords rest = philox(static_cast<std::uint32_t>(token), noise::kUseRest, noise);
    return -fixed_log(race + exponential_of(rest.word[0]));
}

}  // namespace paceline::cuda
