#include "model/weights/sha256.hpp"

#include <algorithm>
#include <bit>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace paceline {
namespace {

constexpr std::size_t kBlockBytes = 64;

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
alignas(16) constexpr std::array<std::uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian_word(const std::byte* from) {
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word = (word << 8U) | std::to_integer<std::uint32_t>(from[i]);
    return word;
}

void add_block(Sha256::State& state, const std::byte* block) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) w[i] = big_endian_word(block + 4 * i);
    for (std::size_t i = 16; i < 64; ++i) {
        const std::uint32_t a = w[i - 15];
        const std::uint32_t b = w[i - 2];
        w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3U)) + w[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10U));
    }
    Sha256::State s = state;
    for (std::size_t i = 0; i < 64; ++i) {
        const std::uint32_t chosen = (s[4] & s[5]) ^ (~s[4] & s[6]);
        const std::uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        const std::uint32_t first =
            s[7] + (std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25)) + chosen +
            kRounds[i] + w[i];
        const std::uint32_t second =
            (std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22)) + majority;
        s = {first + second, s[0], s[1], s[2], s[3] + first, s[4], s[5], s[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) state[i] += s[i];
}

void add_blocks(Sha256::State& state, const std::byte* blocks, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) add_block(state, blocks + i * kBlockBytes);
}

#if defined(__x86_64__)
bool has_sha_instructions() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kSha = 1U << 29U;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
}

/// The instructions keep the state as the words A B E F and C D G H.
__attribute__((target("sha,sse4.1"))) void add_blocks_x86(Sha256::State& state,
                                                          const std::byte* blocks,
                                                          std::size_t count) {
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    auto* words = reinterpret_cast<__m128i*>(state.data());
    const __m128i dcba = _mm_loadu_si128(words);
    const __m128i hgfe = _mm_loadu_si128(words + 1);
    const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1);
    const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
    __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    for (std::size_t block = 0; block < count; ++block, blocks += kBlockBytes) {
        const __m128i abef_before = abef;
        const __m128i cdgh_before = cdgh;
        __m128i w[4];  // sixteen words of the schedule, those of step i at i % 4
#pragma GCC unroll 16
        for (unsigned i = 0; i < 16; ++i) {
            __m128i& now = w[i % 4];
            if (i < 4) {
                const auto* from = reinterpret_cast<const __m128i*>(blocks) + i;
                now = _mm_shuffle_epi8(_mm_loadu_si128(from), big_endian);
            } else {
                const __m128i last = w[(i + 3) % 4];
                const __m128i older = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
                now = _mm_sha256msg1_epu32(now, w[(i + 1) % 4]);
                now = _mm_sha256msg2_epu32(_mm_add_epi32(now, older), last);
            }
            const auto* rounds = reinterpret_cast<const __m128i*>(kRounds.data()) + i;
            const __m128i sum = _mm_add_epi32(now, _mm_load_si128(rounds));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
    const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}
#endif

void add_blocks_best(Sha256::State& state, const std::byte* blocks, std::size_t count) {
#if defined(__x86_64__)
    static const bool fast = has_sha_instructions();
    if (fast) return add_blocks_x86(state, blocks, count);
#endif
    add_blocks(state, blocks, count);
}

}  // namespace

void Sha256::add(std::span<const std::byte> bytes) {
    const auto take = way_ == Way::Best ? add_blocks_best : add_blocks;
    bytes_ += bytes.size();
    if (filled_ > 0) {
        const std::size_t part = std::min(bytes.size(), kBlockBytes - filled_);
        std::copy_n(bytes.begin(), part, block_.begin() + static_cast<std::ptrdiff_t>(filled_));
        filled_ += part;
        bytes = bytes.subspan(part);
        if (filled_ < kBlockBytes) return;
        take(state_, block_.data(), 1);
    }
    const std::size_t whole = bytes.size() / kBlockBytes;
    take(state_, bytes.data(), whole);
    const std::span<const std::byte> rest = bytes.subspan(whole * kBlockBytes);
    std::copy(rest.begin(), rest.end(), block_.begin());
    filled_ = rest.size();
}

std::string Sha256::text() {
    const std::uint64_t bits = 8 * bytes_;
    std::array<std::byte, 2 * kBlockBytes> end{std::byte{0x80}};
    const std::size_t padding =
        (filled_ < kBlockBytes - 8 ? kBlockBytes : 2 * kBlockBytes) - filled_;
    for (unsigned i = 0; i < 8; ++i) end[padding - 1 - i] = static_cast<std::byte>(bits >> (8 * i));
    add(std::span{end}.first(padding));
    constexpr const char* kHex = "0123456789abcdef";
    std::string text;
    for (const std::uint32_t word : state_) {
        for (unsigned shift = 32; shift > 0; shift -= 4) text += kHex[(word >> (shift - 4)) & 15U];
    }
    return text;
}

std::string sha256_text(std::span<const std::byte> bytes) {
    Sha256 digest;
    digest.add(bytes);
    return digest.text();
}

}  // namespace paceline
