// The kernels of wgmma_kernels.hpp. Made to be right, not to be fast: a block stages 64 k, waits,
// multiplies.
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/launch.cuh"
#include "tests/unit/cuda/wgmma/wgmma_kernels.hpp"

namespace paceline::cuda::test {
namespace {

using namespace wgmma;

constexpr int kThreads = 128;  // a warpgroup
constexpr int kBlockRows = 64;
constexpr int kStage = 64;  // k that a block has in shared memory
constexpr int kChunks = kStage / 8;

PACE_DEVICE std::uint32_t word_at(const std::uint16_t* from) {
    return *reinterpret_cast<const std::uint32_t*>(from);
}

/// A warp has 16 rows of A and 8 of B; a block has 64 rows of A.
PACE_KERNEL void mma_chain(SumsCall call) {
    const int g = lane() / 4;
    const int t = lane() % 4;
    const int row = kBlockRows * block_y() + 16 * warp() + g;
    const int column = 8 * block_x();
    const std::uint16_t* a = call.a + row * call.k + 2 * t;
    const std::uint16_t* below = a + 8 * call.k;
    const std::uint16_t* b = call.b + (column + g) * call.k + 2 * t;
    float totals[4] = {-0.0F, -0.0F, -0.0F, -0.0F};  // adding to -0 changes no bit
    for (int slice = 0; slice < call.slices; ++slice) {
        float sums[4] = {};
        const int end = call.k / call.slices * (slice + 1);
        for (int k = end - call.k / call.slices; k < end; k += 16) {
            const std::uint32_t left[4] = {word_at(a + k), word_at(below + k), word_at(a + k + 8),
                                           word_at(below + k + 8)};
            const std::uint32_t right[2] = {word_at(b + k), word_at(b + k + 8)};
            mma_bf16(sums, left, right);
        }
        for (int i = 0; i < 4; ++i) totals[i] += sums[i];
    }
    for (int i = 0; i < 4; ++i)
        call.c[(row + i / 2 * 8) * call.n + column + 2 * t + i % 2] = totals[i];
}

/// `rows` rows and kStage k of an operand, by the layout of wgmma_nvcc.cuh.
PACE_DEVICE void stage(const std::uint16_t* from, int stride, int rows, unsigned char* to) {
    for (int piece = thread_index(); piece < rows * kChunks; piece += kThreads) {
        const int row = piece / kChunks;
        const int chunk = piece % kChunks;
        *reinterpret_cast<Words4*>(to + 16 * (chunk * rows + row)) =
            *reinterpret_cast<const Words4*>(from + row * stride + 8 * chunk);
    }
}

/// A's 64 rows and 16 k from chunk `chunk` on.
template <Rows kRows>
PACE_DEVICE Source source_of(const unsigned char* a, int chunk) {
    Source source{};
    const unsigned char* first = a + 16 * kBlockRows * chunk;
    if constexpr (kRows == Rows::Shared) {
        source.descriptor = descriptor_of(first, kBlockRows);
    } else {
        const unsigned char* mine = first + 16 * (16 * warp() + lane() / 4) + 4 * (lane() % 4);
        for (int i = 0; i < 4; ++i)
            source.words[i] = *reinterpret_cast<const std::uint32_t*>(mine + i % 2 * 8 * 16 +
                                                                      i / 2 * 16 * kBlockRows);
    }
    return source;
}

/// A block has 64 rows of A and kWidth of B.
template <int kWidth, Rows kRows>
PACE_KERNEL void wgmma_chain(SumsCall call) {
    constexpr int kSums = kWidth / 2;  // of a thread
    auto* const a = shared_memory<unsigned char>(0);
    unsigned char* const b = a + 2 * kBlockRows * kStage;
    const int row = kBlockRows * block_y();
    const int column = kWidth * block_x();
    float totals[kSums];
    for (int i = 0; i < kSums; ++i) totals[i] = -0.0F;
    for (int slice = 0; slice < call.slices; ++slice) {
        float sums[kSums] = {};
        const int end = call.k / call.slices * (slice + 1);
        for (int k = end - call.k / call.slices; k < end; k += kStage) {
            stage(call.a + row * call.k + k, call.k, kBlockRows, a);
            stage(call.b + column * call.k + k, call.k, kWidth, b);
            publish_shared();
            sync_block();
            Source sources[kStage / 16];
#pragma unroll
            for (int i = 0; i < kStage / 16; ++i) sources[i] = source_of<kRows>(a, 2 * i);
            hold(sums);
            begin_products();
#pragma unroll
            for (int i = 0; i < kStage / 16; ++i)
                multiply<kWidth, kRows>(sums, sources[i],
                                        descriptor_of(b + 2 * i * 16 * kWidth, kWidth));
            end_products();
            hold(sums);
            sync_block();  // before the next numbers take this place
        }
        for (int i = 0; i < kSums; ++i) totals[i] += sums[i];
    }
    for (int i = 0; i < kSums; ++i) {
        const int r = row + 16 * warp() + lane() / 4 + i / 2 % 2 * 8;
        const int n = column + i / 4 * 8 + lane() % 4 * 2 + i % 2;
        call.c[r * call.n + n] = totals[i];
    }
}

template <int kWidth>
void launch_width(Stream& stream, const SumsCall& call, bool a_in_registers) {
    LaunchShape shape;
    shape.blocks_x = call.n / kWidth;
    shape.blocks_y = call.m / kBlockRows;
    shape.threads = kThreads;
    shape.shared_bytes = static_cast<std::size_t>(2 * kStage * (kBlockRows + kWidth));
    launch(
        stream, shape,
        a_in_registers ? wgmma_chain<kWidth, Rows::Registers> : wgmma_chain<kWidth, Rows::Shared>,
        call);
}

}  // namespace

std::string wgmma_problem(const DeviceInfo& device) {
    if (device.capability != 90)
        return device.name + " has compute capability " + std::to_string(device.capability / 10) +
               "." + std::to_string(device.capability % 10) + ", wgmma is of 9.0 alone";
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, wgmma_chain<8, Rows::Shared>) == cudaSuccess) return {};
    (void)cudaGetLastError();
    return "this build has no code of 9.0a for " + device.name;
}

void launch_mma_chain(Stream& stream, const SumsCall& call) {
    LaunchShape shape;
    shape.blocks_x = call.n / 8;
    shape.blocks_y = call.m / kBlockRows;
    shape.threads = kThreads;
    launch(stream, shape, mma_chain, call);
}

void launch_wgmma_chain(Stream& stream, const SumsCall& call, int width, bool a_in_registers) {
    if (width == 8) return launch_width<8>(stream, call, a_in_registers);
    if (width == 64) return launch_width<64>(stream, call, a_in_registers);
    if (width == 128) return launch_width<128>(stream, call, a_in_registers);
    throw DeviceError("wgmma of width " + std::to_string(width) + ": 8, 64 and 128 are built");
}

}  // namespace paceline::cuda::test
