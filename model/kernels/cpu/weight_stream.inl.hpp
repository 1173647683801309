// How matrix kernels read weights: lane blocks of a tile, and what they ask the cache for ahead of
// time.
//
// Weights stream from memory once per call for few rows; for many rows they come from the cache
// after the first panel. Included only by gemm.inl.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/kernels/cpu/packed_blocks.hpp"
#include "model/kernels/cpu/packed_matrix.hpp"

namespace paceline::gemm {

// Bytes of a stream that are asked for before they are needed: about 300 ns at 40 GB/s, a quarter
// of an L1 cache. 4096 was measured up to 20 % slower, 16384 no faster.
inline constexpr int kAhead = 12288;

/// Where a lane block's numbers are inside its tile: of the first pair of groups, or the tile's
/// start for block types, which find their groups themselves.
template <class S>
struct LaneBlock {
    const std::uint8_t* quants;
    const std::uint8_t* scales;
    const std::uint8_t* bytes;  // the tile, at a byte per lane
    bool past_cache;            // PackedMatrix::past_cache, if the call reads the weights once
};

/// Asks for the line that will be read kAhead bytes later than `from`.
template <class S>
[[gnu::always_inline]] inline void prefetch_line(const LaneBlock<S>& w, const std::uint8_t* from) {
    if (w.past_cache) {
        S::prefetch_past_cache(from + kAhead);
    } else {
        S::prefetch(from + kAhead);
    }
}

/// Whether lane block b of a register tile is the first one of its cache lines: it prefetches them
/// for all of them.
template <class S>
constexpr bool first_of_line(int b) {
    return b % (kTileRows / S::kLanes) == 0;
}

/// Whether lane block b prefetches each of a group's lines alone, before the products of that line.
template <class S>
constexpr bool asks_for_line(int b) {
    return !S::kPrefetchesGroups && first_of_line<S>(b);
}

/// Cache lines of so many bytes that begin on one.
constexpr int lines(int bytes) {
    return (bytes + kLine - 1) / kLine;
}

/// Prefetches all lines of the group of weights that lies kAhead bytes after the one at `from`: one
/// branch for the group, and none between its products.
template <class S, int kLines, int kBlocks>
[[gnu::always_inline]] inline void prefetch_group(const LaneBlock<S> (&w)[kBlocks], int from) {
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; b += kTileRows / S::kLanes) {
        const std::uint8_t* line = w[b].quants + from + kAhead;
        if (w[b].past_cache) {
#pragma GCC unroll 16
            for (int i = 0; i < kLines; ++i) S::prefetch_past_cache(line + i * kLine);
        } else {
#pragma GCC unroll 16
            for (int i = 0; i < kLines; ++i) S::prefetch(line + i * kLine);
        }
    }
}

template <class S>
LaneBlock<S> lane_block(const PackedMatrix& w, int block, int rows) {
    constexpr int kPerTile = kTileRows / S::kLanes;
    const auto* tile = reinterpret_cast<const std::uint8_t*>(w.data) +
                       static_cast<std::size_t>(block / kPerTile) * w.tile_bytes();
    const auto lane = static_cast<std::size_t>(block % kPerTile * S::kLanes);
    // A lane has four bytes in each 64-byte line of quants (two float16: two in each half of a
    // line), and two in each line of scales.
    const std::size_t lane_bytes = w.type == PackedType::F16 ? 2 : 4;
    return {tile + lane_bytes * lane, tile + 2 * w.group_bytes() + 2 * lane, tile + lane,
            w.past_cache && rows <= kPanelRows};
}

}  // namespace paceline::gemm
