// SimdPortable: the vector operations the kernels are written in, as loops over lanes.
//
// Included only by kernels_portable.cpp. Same names in the same order as simd_avx512.hpp. The
// multiply-add rounds twice here (a fused one in software is a hundred times slower).
#pragma once

#include <cmath>
#include <cstdint>

#include "model/weights/tensor.hpp"

namespace paceline {

struct SimdPortable {
    static constexpr int kLanes = 16;
    // Few at once: loops over lanes are slow to compile, and have no registers to share.
    static constexpr int kRowsMax = 2;
    static constexpr int kBlocksMax = 1;
    static constexpr bool kSums16 = false;
    static constexpr bool kPrefetchesGroups = false;
    static constexpr bool kPrefetchesBlocks = true;  // the same of block types
    struct F {
        float v[kLanes];
    };
    struct I {
        std::int32_t v[kLanes];
    };
    struct B {
        std::uint8_t v[4 * kLanes];
    };

    template <class Op>
    static F each(Op op) {
        F out;
        for (int l = 0; l < kLanes; ++l) out.v[l] = op(l);
        return out;
    }

    static F zero() { return set1(0.0f); }
    static F set1(float x) {
        return each([=](int) { return x; });
    }
    static F load(const float* p) {
        F out;
        __builtin_memcpy(out.v, p, sizeof(out.v));
        return out;
    }
    static void store(float* p, F x) { __builtin_memcpy(p, x.v, sizeof(x.v)); }
    static F add(F a, F b) {
        return each([&](int l) { return a.v[l] + b.v[l]; });
    }
    static F sub(F a, F b) {
        return each([&](int l) { return a.v[l] - b.v[l]; });
    }
    static F mul(F a, F b) {
        return each([&](int l) { return a.v[l] * b.v[l]; });
    }
    static F div(F a, F b) {
        return each([&](int l) { return a.v[l] / b.v[l]; });
    }
    static F fma(F a, F b, F c) {
        return each([&](int l) { return a.v[l] * b.v[l] + c.v[l]; });
    }
    static F max(F a, F b) {
        return each([&](int l) { return a.v[l] > b.v[l] ? a.v[l] : b.v[l]; });
    }
    static F min(F a, F b) {
        return each([&](int l) { return a.v[l] < b.v[l] ? a.v[l] : b.v[l]; });
    }
    static F abs(F a) {
        return each([&](int l) { return std::fabs(a.v[l]); });
    }
    static F round(F a) {
        return each([&](int l) { return std::nearbyintf(a.v[l]); });
    }
    static F pow2(F n) {
        return each([&](int l) { return std::ldexp(1.0f, static_cast<int>(n.v[l])); });
    }
    static F select_gt(F a, F b, F x, F y) {
        return each([&](int l) { return a.v[l] > b.v[l] ? x.v[l] : y.v[l]; });
    }

    static I zero_i() { return set1_i(0); }
    static I set1_i(std::int32_t x) {
        I out;
        for (std::int32_t& lane : out.v) lane = x;
        return out;
    }
    static F to_float(I a) {
        return each([&](int l) { return static_cast<float>(a.v[l]); });
    }

    static F load_half(const std::uint16_t* p) {
        return each([&](int l) { return half_to_float(p[l]); });
    }
    static F load_bfloat(const std::uint16_t* p) {
        return each([&](int l) { return bfloat_to_float(p[l]); });
    }

    static void store_half(std::uint16_t* p, F x) {
        for (int l = 0; l < kLanes; ++l) p[l] = float_to_half(x.v[l]);
    }
    static void store_bfloat(std::uint16_t* p, F x) {
        for (int l = 0; l < kLanes; ++l) p[l] = float_to_bfloat(x.v[l]);
    }
    static float max_abs32(const float* x) {
        float largest = 0.0f;
        for (int k = 0; k < 32; ++k)
            largest = std::fabs(x[k]) > largest ? std::fabs(x[k]) : largest;
        return largest;
    }
    static std::int32_t quantize32(const float* x, float factor, std::int8_t* out) {
        std::int32_t total = 0;
        for (int k = 0; k < 32; ++k) {
            const float rounded = std::nearbyintf(x[k] * factor);
            // The comparisons are written so that a NaN ends at -127, inside the type.
            const float clamped =
                rounded >= -127.0f ? (rounded < 127.0f ? rounded : 127.0f) : -127.0f;
            out[k] = static_cast<std::int8_t>(clamped);
            total += out[k];
        }
        return total;
    }

    static B load_bytes(const std::uint8_t* p) {
        B out;
        __builtin_memcpy(out.v, p, sizeof(out.v));
        return out;
    }
    static B low_nibbles(B b) {
        for (std::uint8_t& byte : b.v) byte &= 0x0f;
        return b;
    }
    static B high_nibbles(B b) {
        for (std::uint8_t& byte : b.v) byte = static_cast<std::uint8_t>(byte >> 4);
        return b;
    }
    template <int kBits, int kFrom, int kTo>
    static B field(B bytes) {
        for (std::uint8_t& byte : bytes.v)
            byte = static_cast<std::uint8_t>((byte >> kFrom & ((1 << kBits) - 1)) << kTo);
        return bytes;
    }
    static B either(B a, B b) {
        for (int i = 0; i < 4 * kLanes; ++i) a.v[i] = static_cast<std::uint8_t>(a.v[i] | b.v[i]);
        return a;
    }
    static B look_up(B codes, const std::uint8_t* table) {
        for (std::uint8_t& code : codes.v) code = table[code];
        return codes;
    }
    static F load_u8(const std::uint8_t* p) {
        return each([&](int l) { return static_cast<float>(p[l]); });
    }
    static F load_i8(const std::uint8_t* p) {
        return each([&](int l) { return static_cast<float>(static_cast<std::int8_t>(p[l])); });
    }
    static F load_low4(const std::uint8_t* p) {
        return each([&](int l) { return static_cast<float>(p[l] & 15); });
    }
    static F load_high4(const std::uint8_t* p) {
        return each([&](int l) { return static_cast<float>(p[l] >> 4); });
    }
    static F load_power(const std::uint8_t* p) {
        return each([&](int l) { return std::ldexp(1.0f, p[l] - 128); });
    }
    static B broadcast4(const std::int8_t* p) {
        B out;
        for (int l = 0; l < kLanes; ++l) __builtin_memcpy(out.v + 4 * l, p, 4);
        return out;
    }
    static I dot_nibbles(I acc, B w, B a) {
        for (int l = 0; l < kLanes; ++l) {
            for (int b = 4 * l; b < 4 * l + 4; ++b) {
                acc.v[l] += static_cast<std::int32_t>(w.v[b]) * static_cast<std::int8_t>(a.v[b]);
            }
        }
        return acc;
    }
    static I int8_start(std::int32_t activation_sum) { return set1_i(-128 * activation_sum); }
    static I dot_int8(I acc, B w, B a) { return dot_nibbles(acc, w, a); }

    struct W {
        F even, odd;
    };
    struct P {
        float even, odd;
    };
    static W load_pairs(const std::uint16_t* p) {
        return {each([&](int l) { return bfloat_to_float(p[2 * l]); }),
                each([&](int l) { return bfloat_to_float(p[2 * l + 1]); })};
    }
    static P broadcast_pair(const std::uint16_t* p) {
        return {bfloat_to_float(p[0]), bfloat_to_float(p[1])};
    }
    static F dot_pairs(F acc, W w, P a) {
        return fma(w.odd, set1(a.odd), fma(w.even, set1(a.even), acc));
    }

    static void prefetch(const void* /*p*/) {}
    static void prefetch_past_cache(const void* /*p*/) {}
};

}  // namespace paceline
