// SimdAvx512: the vector operations the kernels are written in, for AVX-512 (VNNI, BF16).
//
// Included only by kernels_avx512.cpp, which is compiled for this instruction set. The three
// simd_*.hpp files have the same names in the same order: read one, know all.
#pragma once

#include <cstdint>
#include <immintrin.h>

namespace paceline {

struct SimdAvx512 {
    static constexpr int kLanes = 16;
    static constexpr int kRowsMax = 8;    // rows a matrix kernel keeps in registers
    static constexpr int kBlocksMax = 2;  // lane blocks, for many rows
    static constexpr bool kSums16 = false;
    // 4-bit and int8 matrices: whether all lines of a group are prefetched at once, or each one
    // before its products (measured slower on AMD; kernels_amx.cpp has it otherwise).
    static constexpr bool kPrefetchesGroups = true;
    static constexpr bool kPrefetchesBlocks = true;  // the same of block types
    using F = __m512;                                // kLanes float32
    using I = __m512i;                               // kLanes int32
    using B = __m512i;  // 4 * kLanes bytes: four consecutive k for each lane

    static F zero() { return _mm512_setzero_ps(); }
    static F set1(float x) { return _mm512_set1_ps(x); }
    static F load(const float* p) { return _mm512_loadu_ps(p); }
    static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
    static F add(F a, F b) { return _mm512_add_ps(a, b); }
    static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
    static F div(F a, F b) { return _mm512_div_ps(a, b); }
    static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    static F max(F a, F b) { return _mm512_max_ps(a, b); }
    static F min(F a, F b) { return _mm512_min_ps(a, b); }
    static F abs(F a) { return _mm512_abs_ps(a); }
    static F round(F a) {
        return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    /// 2^n for integral n in [-126, 127].
    static F pow2(F n) {
        const I biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
        return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
    }
    /// x where a > b, otherwise y.
    static F select_gt(F a, F b, F x, F y) {
        return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
    }

    static I zero_i() { return _mm512_setzero_si512(); }
    static I set1_i(std::int32_t x) { return _mm512_set1_epi32(x); }
    static F to_float(I a) { return _mm512_cvtepi32_ps(a); }

    static F load_half(const std::uint16_t* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    static F load_bfloat(const std::uint16_t* p) {
        const __m512i wide =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
        return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
    }

    static void store_half(std::uint16_t* p, F x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                            _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    static void store_bfloat(std::uint16_t* p, F x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                            reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
    }
    /// The largest |x| of 32 numbers.
    static float max_abs32(const float* x) {
        return _mm512_reduce_max_ps(max(abs(load(x)), abs(load(x + 16))));
    }
    /// out[k] = x[k] * factor, rounded to nearest even; returns the sum of out.
    static std::int32_t quantize32(const float* x, float factor, std::int8_t* out) {
        const I low = _mm512_cvtps_epi32(mul(load(x), set1(factor)));
        const I high = _mm512_cvtps_epi32(mul(load(x + 16), set1(factor)));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtsepi32_epi8(low));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm512_cvtsepi32_epi8(high));
        return _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
    }

    static B load_bytes(const std::uint8_t* p) { return _mm512_load_si512(p); }
    static B low_nibbles(B b) { return _mm512_and_si512(b, _mm512_set1_epi8(0x0f)); }
    static B high_nibbles(B b) {
        return _mm512_and_si512(_mm512_srli_epi16(b, 4), _mm512_set1_epi8(0x0f));
    }
    /// Bits [kFrom, kFrom + kBits) of every byte as its bits [kTo, kTo + kBits), the others 0.
    template <int kBits, int kFrom, int kTo>
    static B field(B bytes) {
        const B mask = _mm512_set1_epi8(static_cast<char>(((1 << kBits) - 1) << kTo));
        if constexpr (kFrom > kTo)
            return _mm512_and_si512(_mm512_srli_epi16(bytes, kFrom - kTo), mask);
        if constexpr (kFrom < kTo)
            return _mm512_and_si512(_mm512_slli_epi16(bytes, kTo - kFrom), mask);
        return _mm512_and_si512(bytes, mask);
    }
    static B either(B a, B b) { return _mm512_or_si512(a, b); }
    /// table[code] for every byte, a code of 0..15.
    static B look_up(B codes, const std::uint8_t* table) {
        return _mm512_shuffle_epi8(
            _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))),
            codes);
    }
    /// A byte per lane as float32.
    static F load_u8(const std::uint8_t* p) {
        return _mm512_cvtepi32_ps(
            _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
    }
    static F load_i8(const std::uint8_t* p) {
        return _mm512_cvtepi32_ps(
            _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
    }
    /// The lower or upper half of a byte per lane.
    static F load_low4(const std::uint8_t* p) {
        return _mm512_cvtepi32_ps(_mm512_and_si512(
            _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm512_set1_epi32(15)));
    }
    static F load_high4(const std::uint8_t* p) {
        return _mm512_cvtepi32_ps(_mm512_srli_epi32(
            _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 4));
    }
    /// 2^(e - 128) of a byte e per lane that is not 255; of 0 and 1 a subnormal.
    static F load_power(const std::uint8_t* p) {
        const I bits = _mm512_slli_epi32(
            _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 23);
        return max(mul(_mm512_castsi512_ps(bits), set1(0.5f)), set1(0x1p-128f));
    }
    /// The same four bytes in every lane.
    static B broadcast4(const std::int8_t* p) {
        std::int32_t four = 0;
        __builtin_memcpy(&four, p, 4);
        return _mm512_set1_epi32(four);
    }
    /// acc[l] + sum over four k of w * a, w in 0..63.
    static I dot_nibbles(I acc, B w, B a) { return _mm512_dpbusd_epi32(acc, w, a); }
    /// The accumulator of a group of int8 products. Weights are stored with 128 added, so that
    /// the unsigned-times-signed instruction can take them; the excess is 128 * sum(a).
    static I int8_start(std::int32_t activation_sum) {
        return _mm512_set1_epi32(-128 * activation_sum);
    }
    static I dot_int8(I acc, B w, B a) { return _mm512_dpbusd_epi32(acc, w, a); }

    // bf16 products. W holds two consecutive k per lane, P the same two of a row in every lane.
    using W = __m512i;
    using P = __m512i;
    static W load_pairs(const std::uint16_t* p) { return _mm512_loadu_si512(p); }
    static P broadcast_pair(const std::uint16_t* p) {
        std::int32_t pair = 0;
        __builtin_memcpy(&pair, p, 4);
        return _mm512_set1_epi32(pair);
    }
    static F dot_pairs(F acc, W w, P a) {
        return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(a));
    }

    // Always inlined: GCC 12 drops calls of functions that only prefetch.
    [[gnu::always_inline]] static void prefetch(const void* p) {
        _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
    }
    [[gnu::always_inline]] static void prefetch_past_cache(const void* p) {
        _mm_prefetch(static_cast<const char*>(p), _MM_HINT_NTA);
    }
};

}  // namespace paceline
