// SimdAvx2: the vector operations the kernels are written in, for AVX2 with FMA and F16C.
//
// Included only by kernels_avx2.cpp. Same names in the same order as simd_avx512.hpp.
#pragma once

#include <cstdint>
#include <immintrin.h>

namespace paceline {

struct SimdAvx2 {
    static constexpr int kLanes = 8;
    static constexpr int kRowsMax = 4;  // sixteen registers hold no more
    static constexpr int kBlocksMax = 2;
    static constexpr bool kSums16 = true;  // products of small codes are added in 16 bits first
    // 4-bit and int8 matrices: each line is prefetched before its products (simd_avx512.hpp).
    static constexpr bool kPrefetchesGroups = false;
    static constexpr bool kPrefetchesBlocks = true;  // the same of block types
    using F = __m256;
    using I = __m256i;
    using B = __m256i;

    static F zero() { return _mm256_setzero_ps(); }
    static F set1(float x) { return _mm256_set1_ps(x); }
    static F load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
    static F add(F a, F b) { return _mm256_add_ps(a, b); }
    static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
    static F div(F a, F b) { return _mm256_div_ps(a, b); }
    static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
    static F max(F a, F b) { return _mm256_max_ps(a, b); }
    static F min(F a, F b) { return _mm256_min_ps(a, b); }
    static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
    static F round(F a) {
        return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    static F pow2(F n) {
        const I biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
    }
    static F select_gt(F a, F b, F x, F y) {
        return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
    }

    static I zero_i() { return _mm256_setzero_si256(); }
    static I set1_i(std::int32_t x) { return _mm256_set1_epi32(x); }
    static F to_float(I a) { return _mm256_cvtepi32_ps(a); }

    static F load_half(const std::uint16_t* p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    static F load_bfloat(const std::uint16_t* p) {
        const __m256i wide =
            _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
        return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    }

    static void store_half(std::uint16_t* p, F x) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                         _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    static void store_bfloat(std::uint16_t* p, F x) {
        const I bits = _mm256_castps_si256(x);
        const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        I rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        // A NaN must not round up into something that is none.
        const I nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        rounded = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), nan);
        const I high = _mm256_srli_epi32(rounded, 16);
        const I packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
    }
    static float max_abs32(const float* x) {
        const F all =
            max(max(abs(load(x)), abs(load(x + 8))), max(abs(load(x + 16)), abs(load(x + 24))));
        __m128 four = _mm_max_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
        four = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
    }
    static std::int32_t quantize32(const float* x, float factor, std::int8_t* out) {
        I q[4];
        for (int v = 0; v < 4; ++v) q[v] = _mm256_cvtps_epi32(mul(load(x + 8 * v), set1(factor)));
        const I bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        const I ordered =
            _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), ordered);
        const I sum = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
        return _mm_cvtsi128_si32(four);
    }

    static B load_bytes(const std::uint8_t* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    }
    static B low_nibbles(B b) { return _mm256_and_si256(b, _mm256_set1_epi8(0x0f)); }
    static B high_nibbles(B b) {
        return _mm256_and_si256(_mm256_srli_epi16(b, 4), _mm256_set1_epi8(0x0f));
    }
    template <int kBits, int kFrom, int kTo>
    static B field(B bytes) {
        const B mask = _mm256_set1_epi8(static_cast<char>(((1 << kBits) - 1) << kTo));
        if constexpr (kFrom > kTo)
            return _mm256_and_si256(_mm256_srli_epi16(bytes, kFrom - kTo), mask);
        if constexpr (kFrom < kTo)
            return _mm256_and_si256(_mm256_slli_epi16(bytes, kTo - kFrom), mask);
        return _mm256_and_si256(bytes, mask);
    }
    static B either(B a, B b) { return _mm256_or_si256(a, b); }
    static B look_up(B codes, const std::uint8_t* table) {
        return _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))),
            codes);
    }
    static F load_u8(const std::uint8_t* p) {
        return _mm256_cvtepi32_ps(
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    }
    static F load_i8(const std::uint8_t* p) {
        return _mm256_cvtepi32_ps(
            _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    }
    static F load_low4(const std::uint8_t* p) {
        return _mm256_cvtepi32_ps(_mm256_and_si256(
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
            _mm256_set1_epi32(15)));
    }
    static F load_high4(const std::uint8_t* p) {
        return _mm256_cvtepi32_ps(_mm256_srli_epi32(
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))), 4));
    }
    static F load_power(const std::uint8_t* p) {
        const I bits = _mm256_slli_epi32(
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))), 23);
        return max(mul(_mm256_castsi256_ps(bits), set1(0.5f)), set1(0x1p-128f));
    }
    static B broadcast4(const std::int8_t* p) {
        std::int32_t four = 0;
        __builtin_memcpy(&four, p, 4);
        return _mm256_set1_epi32(four);
    }
    static I dot_nibbles(I acc, B w, B a) {
        // 63 * 127 * 2 fits 16 bits: the saturating instruction cannot saturate here.
        const I pairs = _mm256_maddubs_epi16(w, a);
        return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    /// Sums of two neighbouring products each, in 16 bits.
    static I products16(B w, B a) { return _mm256_maddubs_epi16(w, a); }
    static I add16(I a, I b) { return _mm256_add_epi16(a, b); }
    static I add_pairs16(I acc, I pairs) {
        return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    static I int8_start(std::int32_t /*activation_sum*/) { return zero_i(); }
    static I dot_int8(I acc, B w, B a) {
        // Back to signed weights, then |w| * (a with w's sign): 128 * 127 * 2 fits 16 bits, where
        // 255 * 127 * 2 would saturate.
        const I weights = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
        const I pairs =
            _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(a, weights));
        return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }

    // bf16 products without the instruction: both halves widened to float32, even k first.
    struct W {
        F even, odd;
    };
    struct P {
        F even, odd;
    };
    static W load_pairs(const std::uint16_t* p) {
        const I raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(raw, 16)),
                _mm256_castsi256_ps(
                    _mm256_and_si256(raw, _mm256_set1_epi32(static_cast<int>(0xffff0000U))))};
    }
    static P broadcast_pair(const std::uint16_t* p) {
        std::uint32_t pair = 0;
        __builtin_memcpy(&pair, p, 4);
        const std::uint32_t even = pair << 16;
        const std::uint32_t odd = pair & 0xffff0000U;
        float even_value = 0;
        float odd_value = 0;
        __builtin_memcpy(&even_value, &even, 4);
        __builtin_memcpy(&odd_value, &odd, 4);
        return {set1(even_value), set1(odd_value)};
    }
    static F dot_pairs(F acc, W w, P a) { return fma(w.odd, a.odd, fma(w.even, a.even, acc)); }

    // Always inlined: GCC 12 drops calls of functions that only prefetch.
    [[gnu::always_inline]] static void prefetch(const void* p) {
        _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
    }
    [[gnu::always_inline]] static void prefetch_past_cache(const void* p) {
        _mm_prefetch(static_cast<const char*>(p), _MM_HINT_NTA);
    }
};

}  // namespace paceline
