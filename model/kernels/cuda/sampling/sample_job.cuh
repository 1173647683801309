// What the kernels of sample.cu share: the job, a row's logits, ranks as integers, reductions.
//
// A row is cut into chunks of kChunkThreads groups (noise_layout.hpp), a thread for each group, so
// that 16 neighbouring lanes, half a warp, have the 16 groups of a tile, and read the tile's
// logits in rows of 64 bytes. A half scores one group of its tile at a time, a lane per member.
//
// A score and its token are one integer, a Key, in the order of the ranking. What is reduced are
// integers, so no result depends on the order of threads. For .cu files.
#pragma once

#include <cstdint>

#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/sampling/noise.cuh"
#include "model/kernels/cuda/sampling/sample.hpp"
#include "model/sampling/noise_layout.hpp"

namespace paceline::cuda::draw {

inline constexpr int kChunkThreads = 128;  // and groups
inline constexpr int kChunkTiles = kChunkThreads / noise::kColumns;
inline constexpr int kChunkTokens = kChunkTiles * noise::kTileTokens;
inline constexpr int kChunksMax = kVocabMax / kChunkTokens;
inline constexpr int kBins = 64;  // of the distance to the row's largest logit
inline constexpr int kHalf = 16;  // lanes that work on a tile

inline constexpr float kFloatMax = 3.402823466e+38f;
static_assert(kHalf == noise::kColumns && kHalf == noise::kMembers);
static_assert(kChunksMax <= kChunkThreads, "a thread of a block for each chunk of a row");

/// Higher score first, then lower id: greater keys first. 0: no token.
using Key = std::uint64_t;

/// The argument of every kernel. Arrays are [row_count][...], `chunks` being those of `vocab`.
struct DrawJob {
    DrawInput input;
    int chunks;
    int candidates;

    float* group_max;           // [chunks][kChunkThreads]
    Key* tile_best;             // [chunks][kChunkTiles]: a kept token of the tile
    Key* chunk_top;             // [chunks]: its largest logit
    Key* chunk_best;            // [chunks]: the winner of its race
    std::uint64_t* bin_mass;    // [chunks][kBins]
    std::uint32_t* bin_count;   // [chunks][kBins]
    Key* cut;                   // []: the last token that top-k and top-p keep, 0: all. Or nullptr
    Key* rivals;                // [chunks][kChunkTokens], in the order of groups and members
    std::int32_t* rival_count;  // [chunks]
    float* group_sum;           // [chunks][kChunkThreads]

    std::int32_t* tokens;  // results
    CandidateList* lists;
};

PACE_DEVICE float minus_infinity() {
    return float_of(0xFF800000U);
}

// ---- keys ---------------------------------------------------------------------------------------

/// Scores as integers of the same order; -0 counts as 0.
PACE_DEVICE std::uint32_t ordered(float score) {
    const std::uint32_t bits = bits_of(score + 0.0f);
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

PACE_DEVICE Key rank_key(float score, int token) {
    return (Key{ordered(score)} << 32) | (0xFFFFFFFFU - static_cast<std::uint32_t>(token));
}

/// -infinity of no token.
PACE_DEVICE float score_of(Key key) {
    if (key == 0) return minus_infinity();
    const auto bits = static_cast<std::uint32_t>(key >> 32);
    return float_of((bits >> 31) != 0 ? bits & 0x7FFFFFFFU : ~bits);
}

PACE_DEVICE std::int32_t token_of(Key key) {
    return key == 0 ? -1 : static_cast<std::int32_t>(0xFFFFFFFFU - static_cast<std::uint32_t>(key));
}

PACE_DEVICE Key larger(Key a, Key b) {
    return a > b ? a : b;
}

PACE_DEVICE Key shuffle_xor_key(Key key, int mask) {
    const auto low = shuffle_xor(static_cast<unsigned>(key), mask);
    const auto high = shuffle_xor(static_cast<unsigned>(key >> 32), mask);
    return (Key{high} << 32) | low;
}

/// The largest key of the 16 or 32 lanes that `lanes` says.
PACE_DEVICE Key largest_of_lanes(Key key, int lanes) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) key = larger(key, shuffle_xor_key(key, mask));
    return key;
}

/// The largest key of the block; `warps` is shared memory, one for each warp.
PACE_DEVICE Key largest_of_block(Key key, Key* warps) {
    key = largest_of_lanes(key, 32);
    if (lane() == 0) warps[warp()] = key;
    sync_block();
    for (int i = 0; i < block_size() / 32; ++i) key = larger(key, warps[i]);
    sync_block();  // `warps` may be used again
    return key;
}

// ---- bits ---------------------------------------------------------------------------------------

PACE_DEVICE int ones(std::uint32_t x) {
    x = x - ((x >> 1) & 0x55555555U);
    x = (x & 0x33333333U) + ((x >> 2) & 0x33333333U);
    return static_cast<int>((((x + (x >> 4)) & 0x0F0F0F0FU) * 0x01010101U) >> 24);
}

/// Where the lowest bit of x is; 32 if there is none.
PACE_DEVICE int lowest_one(std::uint32_t x) {
    return ones(~x & (x - 1));
}

/// The part of a ballot that is of this lane's half.
PACE_DEVICE std::uint32_t half_of(unsigned votes) {
    return (votes >> (lane() & kHalf)) & 0xFFFFU;
}

// ---- a row --------------------------------------------------------------------------------------

struct RowView {
    int index;  // of the row
    DrawRow row;
    const float* logits;
    const std::int32_t* places;  // nullptr: the logits of all tokens in a row
    int vocab;                   // a greedy row with a list has that list as its vocabulary
    float largest;               // what is larger counts as this
    bool greedy;

    PACE_DEVICE int chunks() const { return (vocab + kChunkTokens - 1) / kChunkTokens; }
    PACE_DEVICE int tiles() const { return (vocab + noise::kTileTokens - 1) / noise::kTileTokens; }
    PACE_DEVICE float logit(int token) const {
        if (token >= vocab) return minus_infinity();
        const int place = places == nullptr ? token : places[token];
        if (place < 0) return minus_infinity();
        const float value = logits[place];
        return value > largest ? largest : value;
    }
    /// The logits of a group's members. All are asked for before any has arrived.
    PACE_DEVICE void load_group(int group, float (&members)[noise::kMembers]) const;
};

PACE_DEVICE RowView row_view(const DrawJob& job, int index) {
    const DrawInput& input = job.input;
    RowView view;
    view.index = index;
    view.row = input.rows[index];
    view.logits = input.logits + view.row.logits_row * input.stride;
    view.greedy = !(view.row.inverse_temperature > 0.0f);
    const bool listed = input.list.tokens != nullptr;
    view.places = listed && !view.greedy ? input.list.places : nullptr;
    view.vocab = listed && view.greedy ? input.list.count : input.vocab;
    view.largest = view.greedy ? float_of(0x7F800000U) : kFloatMax;
    return view;
}

PACE_DEVICE bool has_cut(const DrawRow& row) {
    return row.inverse_temperature > 0.0f && (row.top_k > 0 || row.top_p < 1.0f);
}

PACE_DEVICE int token_of_member(int group, int member) {
    return noise::kTileTokens * (group / noise::kColumns) + noise::kColumns * member +
           group % noise::kColumns;
}

PACE_DEVICE void RowView::load_group(int group, float (&members)[noise::kMembers]) const {
    const int first = token_of_member(group, 0);
    if (places == nullptr && first + noise::kColumns * (noise::kMembers - 1) < vocab) {
        const float* from = logits + first;
#pragma unroll
        for (int i = 0; i < noise::kMembers; ++i) members[i] = from[noise::kColumns * i];
#pragma unroll
        for (float& member : members) member = member > largest ? largest : member;
    } else {
#pragma unroll
        for (int i = 0; i < noise::kMembers; ++i) members[i] = logit(first + noise::kColumns * i);
    }
}

/// The row's largest logit, for the whole block, which has a thread for each chunk.
PACE_DEVICE Key top_of_row(const DrawJob& job, const RowView& view, Key* warps) {
    const int chunk = thread_index();
    const Key own = chunk < view.chunks() ? job.chunk_top[view.index * job.chunks + chunk] : 0;
    return largest_of_block(own, warps);
}

/// Bins of a row by how far a logit is behind the largest: 8 in each factor of two from 1/4 on.
/// Higher logits are never in higher bins.
PACE_DEVICE int bin_of(float behind) {
    const int bin = static_cast<int>(bits_of(behind) >> 20) - static_cast<int>(0x3E800000U >> 20);
    return bin < 0 ? 0 : bin >= kBins ? kBins - 1 : bin;
}

}  // namespace paceline::cuda::draw
