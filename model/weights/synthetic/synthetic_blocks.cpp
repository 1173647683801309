#include "model/weights/synthetic/synthetic_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/weights/synthetic/synthetic_numbers.hpp"

namespace paceline {
namespace {

/// Where a block has its float scales, and the statistics of its numbers for d = 1.
struct BlockScales {
    std::ptrdiff_t d;        // byte of d; of MXFP4, of e
    std::ptrdiff_t minimum;  // byte of dmin or m; -1: none
    float minimum_of_d;      // dmin or m for d = 1 that makes the mean 0
    float deviation;         // standard deviation with both, codes and scales being equally likely
};

BlockScales scales_of(StoredType type) {
    switch (type) {
        case StoredType::Q5_0:
            return {0, -1, 0.0f, 9.2331f};
        case StoredType::Q5_1:
            return {0, 2, -15.5f, 9.2331f};
        case StoredType::Q2_K:
            return {80, 82, 1.5f, 13.8744f};
        case StoredType::Q3_K:
            return {108, -1, 0.0f, 43.3381f};
        case StoredType::Q4_K:
            return {0, 2, 7.5f, 258.3167f};
        case StoredType::Q5_K:
            return {0, 2, 15.5f, 526.9265f};
        case StoredType::Q6_K:
            return {208, -1, 0.0f, 1365.6874f};
        case StoredType::IQ4_NL:
            return {0, -1, 0.0f, 67.1825f};
        case StoredType::IQ4_XS:
            return {0, -1, 0.0f, 1246.2477f};
        case StoredType::MXFP4:
            return {0, -1, 0.0f, 5.8524f};
        default:
            PACE_CHECK(false, "a block type");
            return {};
    }
}

void put_half(std::byte* at, float value) {
    const std::uint16_t half = float_to_half(value);
    std::memcpy(at, &half, sizeof half);
}

}  // namespace

void random_blocks(
    StoredType type, std::uint64_t seed, std::int64_t row, int columns, std::span<std::byte> out) {
    const TypeTraits of = traits(type);
    const BlockScales scales = scales_of(type);
    // A draw has eight bytes and is indexed by four columns of 16 bits: as of a row of `size / 2`
    // columns.
    const auto draw_columns = static_cast<int>((out.size() + 1) / 2);
    for (std::size_t at = 0; at < out.size(); at += 8) {
        const std::uint64_t draw = random_draw(seed, static_cast<std::uint64_t>(row), draw_columns,
                                               static_cast<int>(at / 2));
        std::memcpy(out.data() + at, &draw, std::min<std::size_t>(8, out.size() - at));
    }
    const float d = 1.0f / (std::sqrt(static_cast<float>(columns)) * scales.deviation);
    for (std::byte* block = out.data(); block < out.data() + out.size(); block += of.block_bytes) {
        if (type == StoredType::MXFP4) {
            block[scales.d] = static_cast<std::byte>(128 + std::lround(std::log2(d)));
            continue;
        }
        put_half(block + scales.d, d);
        if (scales.minimum >= 0) put_half(block + scales.minimum, scales.minimum_of_d * d);
    }
}

}  // namespace paceline
