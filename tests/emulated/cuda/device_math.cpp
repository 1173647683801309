#include "tests/emulated/cuda/device_math.hpp"

#include <bit>
#include <cmath>

#include "tests/emulated/cuda/block.hpp"

namespace paceline::cuda::emulated {
namespace {

constexpr int kRows = 16;
constexpr int kColumns = 8;
constexpr int kDepth = 16;
constexpr std::uint32_t kSign = 0x8000'0000U;
constexpr std::uint16_t kNan16 = 0x7FFFU;

/// The upper `32 - drop` bits of `bits`, rounded to nearest even.
std::uint32_t rounded_shift(std::uint32_t bits, unsigned drop) {
    const std::uint32_t half = (1U << (drop - 1)) - 1;
    return (bits + half + (bits >> drop & 1U)) >> drop;
}

struct Tiles {
    float a[kRows][kDepth];
    float b[kDepth][kColumns];
    float c[kRows][kColumns];
};

/// Two neighbours of a row, from the two halves of a word.
void unpack(std::uint32_t word, float& low, float& high) {
    low = std::bit_cast<float>(word << 16U);
    high = std::bit_cast<float>(word & 0xFFFF'0000U);
}

[[gnu::always_inline]] inline void multiply(Tiles& tiles) {
    for (int row = 0; row < kRows; ++row) {
        for (int k = 0; k < kDepth; ++k) {
            for (int column = 0; column < kColumns; ++column) {
                tiles.c[row][column] =
                    __builtin_fmaf(tiles.a[row][k], tiles.b[k][column], tiles.c[row][column]);
            }
        }
    }
}

// The same bits either way; without the instruction fmaf is a call, and a product a thousand.
#ifdef __x86_64__
// noipa: at -O2 GCC 12 takes what a call into another target writes for unwritten.
[[gnu::target("avx2,fma"), gnu::noipa]] void multiply_fast(Tiles& tiles) {
    multiply(tiles);
}
#endif
void multiply_anywhere(Tiles& tiles) {
    multiply(tiles);
}

void multiply_here(Tiles& tiles) {
#ifdef __x86_64__
    static const bool fast = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (fast) {
        multiply_fast(tiles);
        return;
    }
#endif
    multiply_anywhere(tiles);
}

}  // namespace

std::uint16_t float_to_bf16(float value) {
    if (std::isnan(value)) return kNan16;
    return static_cast<std::uint16_t>(rounded_shift(std::bit_cast<std::uint32_t>(value), 16));
}

float half_to_float(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000U) << 16U;
    const std::uint32_t magnitude = bits & 0x7FFFU;
    if (magnitude >= 0x7C00U) {  // infinity, NaN
        return std::bit_cast<float>(sign | 0x7F80'0000U | (magnitude & 0x3FFU) << 13U);
    }
    if (magnitude < 0x0400U) {  // units of 2^-24
        const float value = static_cast<float>(magnitude) * 0x1p-24F;
        return sign != 0 ? -value : value;
    }
    return std::bit_cast<float>(sign | ((magnitude << 13U) + (112U << 23U)));
}

std::uint16_t float_to_half(float value) {
    if (std::isnan(value)) return kNan16;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits & kSign) >> 16U);
    const std::uint32_t magnitude = bits & ~kSign;
    const auto with_sign = [sign](std::uint32_t half) {
        return static_cast<std::uint16_t>(sign | half);
    };
    constexpr std::uint32_t kTooLarge = 0x477F'F000U;   // 65520, halfway to what would be 65536
    constexpr std::uint32_t kNormalMin = 0x3880'0000U;  // 2^-14
    if (magnitude >= kTooLarge) return with_sign(0x7C00U);
    if (magnitude >= kNormalMin) return with_sign(rounded_shift(magnitude - (112U << 23U), 13));
    // Adding 1/2 leaves a sum whose last bit is 2^-24, rounded as it should be.
    const float sum = std::bit_cast<float>(magnitude) + 0.5F;
    return with_sign(std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0.5F));
}

void multiply_tiles(void* const* parts) {
    Tiles tiles;
    for (int lane = 0; lane < kLanes; ++lane) {
        const auto& part = *static_cast<const TilePart*>(parts[lane]);
        const int g = lane / 4;
        const int t = lane % 4 * 2;
        for (int quarter = 0; quarter < 4; ++quarter) {
            float* row = &tiles.a[g + quarter % 2 * 8][t + quarter / 2 * 8];
            unpack(part.a[quarter], row[0], row[1]);
        }
        for (int half = 0; half < 2; ++half) {
            const int k = t + half * 8;
            unpack(part.b[half], tiles.b[k][g], tiles.b[k + 1][g]);
        }
        for (int i = 0; i < 4; ++i) tiles.c[g + i / 2 * 8][t + i % 2] = part.c[i];
    }
    multiply_here(tiles);
    for (int lane = 0; lane < kLanes; ++lane) {
        const auto& part = *static_cast<const TilePart*>(parts[lane]);
        const int g = lane / 4;
        const int t = lane % 4 * 2;
        for (int i = 0; i < 4; ++i) part.c[i] = tiles.c[g + i / 2 * 8][t + i % 2];
    }
}

}  // namespace paceline::cuda::emulated
