#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/exchange.hpp"
#include "model/kernels/cuda/launch.cuh"
#include "model/kernels/cuda/row_count.cuh"

namespace paceline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kBlockBytes = 8192;  // of a row that a block takes: 8 reads of 4 a thread

/// The host's memory is read anew: another device has written it since this one last did.
template <class Word>
PACE_DEVICE void take_words(const TakeArgs& args, std::size_t row_begin) {
    const auto* from = reinterpret_cast<const volatile Word*>(
        static_cast<const unsigned char*>(args.from) + row_begin);
    auto* to = reinterpret_cast<Word*>(static_cast<unsigned char*>(args.to) + row_begin);
    const std::size_t begin = static_cast<std::size_t>(block_y()) * kBlockBytes / sizeof(Word);
    const std::size_t all = args.bytes / sizeof(Word);
    const std::size_t end = begin + kBlockBytes / sizeof(Word);
    for (std::size_t i = begin + static_cast<std::size_t>(thread_index()); i < end && i < all;
         i += static_cast<std::size_t>(block_size())) {
        const std::size_t at = i * sizeof(Word);
        if (at < args.own_begin || at >= args.own_end) to[i] = from[i];
    }
}

PACE_KERNEL void take(TakeArgs args) {
    wait_for_previous();
    let_next_start();
    const int row = block_x();
    if (row >= rows_of(args.rows)) return;
    if (args.tokens != nullptr && args.tokens[row] < 0) return;
    const int place = args.row_index != nullptr ? args.row_index[row] : row;
    const std::size_t begin = static_cast<std::size_t>(place) * args.bytes;
    if ((args.bytes | args.own_begin | args.own_end) % 8 == 0) {
        take_words<std::uint64_t>(args, begin);
    } else {
        take_words<std::uint32_t>(args, begin);
    }
}

}  // namespace

void launch_take(Stream& stream, const TakeArgs& args, int rows_max) {
    LaunchShape shape;
    shape.blocks_x = rows_max;
    shape.blocks_y = static_cast<int>((args.bytes + kBlockBytes - 1) / kBlockBytes);
    shape.threads = kThreads;
    shape.overlaps_previous = true;
    launch(stream, shape, take, args);
}

}  // namespace paceline::cuda
