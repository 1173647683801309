// The copy kernel (copy.hpp): neighbouring threads copy neighbouring 16 bytes; each thread has four
// loads under way before its first store, and goes through the memory in steps of the whole grid.
#include <cstdint>
#include <string>

#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/launch.cuh"

#include "bench/cuda/copy.hpp"

namespace paceline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksAProcessor = 8;  // 2048 threads: as many as a multiprocessor holds
constexpr int kLoads = 4;             // of a thread at once

struct CopyArgs {
    const Words4* from = nullptr;
    Words4* to = nullptr;
    std::uint64_t count = 0;  // of 16 bytes
};

PACE_KERNEL void copy_words(CopyArgs args) {
    constexpr std::uint64_t kTile = static_cast<std::uint64_t>(kThreads) * kLoads;
    const auto thread = static_cast<std::uint64_t>(thread_index());
    const auto step = static_cast<std::uint64_t>(grid_x()) * kTile;
    for (std::uint64_t tile = static_cast<std::uint64_t>(block_x()) * kTile; tile < args.count;
         tile += step) {
        Words4 words[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const std::uint64_t at = tile + static_cast<std::uint64_t>(i * kThreads) + thread;
            if (at < args.count) words[i] = load_streamed(args.from + at);
        }
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const std::uint64_t at = tile + static_cast<std::uint64_t>(i * kThreads) + thread;
            if (at < args.count) args.to[at] = words[i];
        }
    }
}

bool aligned(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % sizeof(Words4) == 0;
}

}  // namespace

void launch_copy(Stream& stream, void* to, const void* from, std::size_t bytes, int processors) {
    if (!aligned(to) || !aligned(from) || bytes % sizeof(Words4) != 0)
        throw DeviceError("a copy of " + std::to_string(bytes) +
                          " bytes: addresses and size must be multiples of 16 bytes");
    if (bytes == 0) return;
    const CopyArgs args{static_cast<const Words4*>(from), static_cast<Words4*>(to),
                        bytes / sizeof(Words4)};
    constexpr std::uint64_t kTile = static_cast<std::uint64_t>(kThreads) * kLoads;
    const std::uint64_t tiles = (args.count + kTile - 1) / kTile;
    const auto most =
        static_cast<std::uint64_t>(processors) * static_cast<std::uint64_t>(kBlocksAProcessor);
    LaunchShape shape;
    shape.blocks_x = static_cast<int>(tiles < most ? tiles : most);
    shape.threads = kThreads;
    launch(stream, shape, copy_words, args);
}

}  // namespace paceline::cuda
