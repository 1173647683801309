// The device API of device.cuh between the fibers of an emulated block. Included by it alone.
//
// Where many take part, a source location goes along, so that a report of threads that wait for
// each other says where.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include "tests/emulated/cuda/block.hpp"
#include "tests/emulated/cuda/device_math.hpp"

#define PACE_KERNEL
#define PACE_DEVICE inline

namespace paceline::cuda {

inline int thread_index() {
    return emulated::this_thread().index;
}
inline int block_size() {
    return emulated::this_thread().block->grid().threads;
}
inline int block_x() {
    return emulated::this_thread().block->block_x();
}
inline int block_y() {
    return emulated::this_thread().block->block_y();
}
inline int grid_x() {
    return emulated::this_thread().block->grid().blocks_x;
}
inline int lane() {
    return thread_index() % emulated::kLanes;
}
inline int warp() {
    return thread_index() / emulated::kLanes;
}

template <class T>
T* shared_memory(std::size_t offset_bytes,
                 std::source_location at = std::source_location::current()) {
    static_assert(alignof(T) <= 16);
    return reinterpret_cast<T*>(emulated::this_thread().block->shared(offset_bytes, at));
}

inline void sync_block(std::source_location at = std::source_location::current()) {
    emulated::this_thread().block->sync(at);
}

inline void sync_warp(std::source_location at = std::source_location::current()) {
    static constexpr emulated::WarpOperation kOperation{"sync_warp", [](void* const*) {}};
    emulated::this_thread().block->together(kOperation, nullptr, at);
}

namespace emulated {

template <class T>
struct ShufflePart {
    T value;
    int from;  // a lane, or a mask
    T result;
};

template <class T>
inline constexpr WarpOperation kShuffle{
    "shuffle", [](void* const* parts) {
        for (int lane = 0; lane < kLanes; ++lane) {
            auto& part = *static_cast<ShufflePart<T>*>(parts[lane]);
            part.result = static_cast<ShufflePart<T>*>(parts[part.from])->value;
        }
    }};

template <class T>
inline constexpr WarpOperation kShuffleXor{
    "shuffle_xor", [](void* const* parts) {
        for (int lane = 0; lane < kLanes; ++lane) {
            auto& part = *static_cast<ShufflePart<T>*>(parts[lane]);
            part.result = static_cast<ShufflePart<T>*>(parts[lane ^ part.from])->value;
        }
    }};

template <class T>
T exchange(const WarpOperation& operation, T value, int from, std::source_location at) {
    Block& block = *this_thread().block;
    if (from < 0 || from >= kLanes) block.fail("a shuffle from no lane", at);
    ShufflePart<T> part{value, from, T{}};
    block.together(operation, &part, at);
    return part.result;
}

}  // namespace emulated

template <class T>
T shuffle(T value, int from, std::source_location at = std::source_location::current()) {
    return emulated::exchange(emulated::kShuffle<T>, value, from, at);
}

template <class T>
T shuffle_xor(T value, int mask, std::source_location at = std::source_location::current()) {
    return emulated::exchange(emulated::kShuffleXor<T>, value, mask, at);
}

inline unsigned ballot(bool mine, std::source_location at = std::source_location::current()) {
    struct Part {
        bool mine;
        unsigned all;
    };
    static constexpr emulated::WarpOperation kOperation{
        "ballot", [](void* const* parts) {
            unsigned all = 0;
            for (unsigned lane = 0; lane < emulated::kLanes; ++lane) {
                if (static_cast<const Part*>(parts[lane])->mine) all |= 1U << lane;
            }
            for (int lane = 0; lane < emulated::kLanes; ++lane) {
                static_cast<Part*>(parts[lane])->all = all;
            }
        }};
    Part part{mine, 0};
    emulated::this_thread().block->together(kOperation, &part, at);
    return part.all;
}

struct alignas(16) Words4 {
    std::uint32_t x, y, z, w;
};
struct alignas(8) Words2 {
    std::uint32_t x, y;
};

template <class Words>
Words load_streamed(const Words* from, std::source_location at = std::source_location::current()) {
    if (reinterpret_cast<std::uintptr_t>(from) % sizeof(Words) != 0) {
        emulated::this_thread().block->fail("load_streamed() of an unaligned address", at);
    }
    return *from;
}

inline void copy_async16(void* shared,
                         const void* global,
                         std::source_location at = std::source_location::current()) {
    emulated::this_thread().block->copy_async16(shared, global, at);
}

inline void commit_copies() {
    emulated::this_thread().block->commit_copies();
}

template <int N>
void wait_copies() {
    static_assert(N >= 0);
    emulated::this_thread().block->wait_copies(N);
}

inline void mma_bf16(float (&c)[4],
                     const std::uint32_t (&a)[4],
                     const std::uint32_t (&b)[2],
                     std::source_location at = std::source_location::current()) {
    static constexpr emulated::WarpOperation kOperation{"mma_bf16", &emulated::multiply_tiles};
    emulated::TilePart part{c, a, b};
    emulated::this_thread().block->together(kOperation, &part, at);
}

/// Ends at once; only what a warp asks of its own rows matters here.
template <int kWidth>
void wgmma_bf16(float (&d)[kWidth / 2],
                const std::uint32_t (&a)[4],
                const void* b,
                bool add,
                std::source_location at = std::source_location::current()) {
    static_assert(kWidth == 64 || kWidth == 128, "widths that there are");
    const auto* words = static_cast<const std::uint32_t*>(b);
    const int g = lane() / 4;
    const int t = lane() % 4;
    for (int i = 0; i < kWidth / 8; ++i) {
        const std::uint32_t column[2] = {words[(8 * i + g) * 4 + t],
                                         words[(kWidth + 8 * i + g) * 4 + t]};
        float sums[4] = {};
        for (int k = 0; add && k < 4; ++k) sums[k] = d[4 * i + k];
        mma_bf16(sums, a, column, at);
        for (int k = 0; k < 4; ++k) d[4 * i + k] = sums[k];
    }
}
inline void wgmma_begin() {}
inline void wgmma_commit() {}
template <int N>
void wgmma_wait() {
    static_assert(N >= 0);
}
template <int kCount>
void wgmma_hold(float (&)[kCount]) {}
inline void publish_for_wgmma() {}

inline float bf16_to_float(std::uint16_t bits) {
    return emulated::bf16_to_float(bits);
}
inline float half_to_float(std::uint16_t bits) {
    return emulated::half_to_float(bits);
}
inline std::uint16_t float_to_bf16(float value) {
    return emulated::float_to_bf16(value);
}
inline std::uint16_t float_to_half(float value) {
    return emulated::float_to_half(value);
}
inline std::uint32_t two_bf16(float low, float high) {
    return std::uint32_t{float_to_bf16(low)} | std::uint32_t{float_to_bf16(high)} << 16U;
}

inline std::uint32_t add_two_bf16(std::uint32_t a, std::uint32_t b) {
    const auto half = [](std::uint32_t word, unsigned shift) {
        return bf16_to_float(static_cast<std::uint16_t>(word >> shift & 0xFFFFU));
    };
    return two_bf16(half(a, 0) + half(b, 0), half(a, 16) + half(b, 16));
}

inline std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t from) {
    const std::uint64_t both = std::uint64_t{b} << 32U | a;
    std::uint32_t bytes = 0;
    for (unsigned i = 0; i < 4; ++i) {
        const std::uint64_t byte = both >> (8 * (from >> (4 * i) & 7U)) & 0xFFU;
        bytes |= static_cast<std::uint32_t>(byte) << (8 * i);
    }
    return bytes;
}

inline float fma(float a, float b, float c) {
    return std::fma(a, b, c);
}
inline float exp(float x) {
    return std::exp(x);
}
inline float rsqrt(float x) {
    return 1.0F / std::sqrt(x);
}
inline float maximum(float a, float b) {
    return std::fmax(a, b);
}
inline std::uint32_t bits_of(float value) {
    return std::bit_cast<std::uint32_t>(value);
}
inline float float_of(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

inline void wait_for_previous() {
    emulated::this_thread().block->note_wait_for_previous();
}
inline void let_next_start(std::source_location at = std::source_location::current()) {
    emulated::this_thread().block->note_let_next_start(at);
}

}  // namespace paceline::cuda
