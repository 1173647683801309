// AmxTiles: the tile registers of AMX, configured while an object of it lives, and the instructions
// on them.
//
// A tile has up to 16 rows of up to 64 bytes. A product adds to tile C [m][n], of float32 or int32,
// the products of tile A [m][k] with tile B [k / q][n][q], where q numbers fill four bytes: 4 of
// int8, 2 of bfloat16. The weights of a packed matrix lie in memory as tile B has them
// (packed_matrix.hpp), so the rows of activations are tile A.
//
// Numbers of tiles are constants of the code. Included only by kernels_amx.cpp, which is compiled
// for AMX; isa.hpp asks the system for the registers. One object per thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>
#include <initializer_list>

namespace paceline::amx {

inline constexpr int kTileRowsMax = 16;
inline constexpr int kRowBytesMax = 64;

struct TileShape {
    int rows;   // 0: the tile is not used
    int bytes;  // of a row
};

class AmxTiles {
public:
    [[gnu::always_inline]] explicit inline AmxTiles(std::initializer_list<TileShape> shapes) {
        struct alignas(64) {  // as the instruction reads it
            std::uint8_t palette = 1;
            std::uint8_t start_row = 0;
            std::uint8_t reserved[14] = {};
            std::uint16_t row_bytes[16] = {};
            std::uint8_t rows[16] = {};
        } config;
        std::size_t at = 0;
        for (const TileShape& shape : shapes) {
            config.row_bytes[at] = static_cast<std::uint16_t>(shape.rows > 0 ? shape.bytes : 0);
            config.rows[at++] = static_cast<std::uint8_t>(shape.rows);
        }
        asm volatile("ldtilecfg %0" : : "m"(config));
    }
    /// Without it the system would save 8 KiB of tiles at every switch of threads.
    [[gnu::always_inline]] inline ~AmxTiles() { asm volatile("tilerelease"); }
    AmxTiles(const AmxTiles&) = delete;
    AmxTiles& operator=(const AmxTiles&) = delete;
};

template <int kTile>
[[gnu::always_inline]] inline void tile_zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
/// Rows of the tile begin `stride` bytes apart.
template <int kTile>
[[gnu::always_inline]] inline void tile_load(const void* from, std::ptrdiff_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void tile_store(void* to, std::ptrdiff_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
/// C += A B, of signed int8: exact in int32.
template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void tile_dot_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}
/// C += A B, of bfloat16: in float32, in an order of k that depends on the number of k alone.
template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void tile_dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

}  // namespace paceline::amx
