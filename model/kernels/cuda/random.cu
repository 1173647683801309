// Random weights (random.hpp): a thread writes words of 4 bytes, wherever they are in the matrix.
#include <cmath>

#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm_records.hpp"
#include "model/kernels/cuda/launch.cuh"
#include "model/kernels/cuda/random.hpp"

namespace paceline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksMax = 4096;
constexpr float kUniformScale = 1.7320508f;  // of [-1, 1] to a variance of 1
constexpr float kInt8Deviation = 73.6f;      // of a whole number in -127 .. 127
constexpr float kQ4Deviation = 4.61f;        // of one in 0 .. 15
constexpr float kQ4Mean = 7.5f;

struct RandomArgs {
    DeviceMatrix matrix;
    std::uint32_t* words = nullptr;
    std::uint64_t count = 0;  // of words
    std::uint64_t seed = 0;
    float scale = 0.0f;  // of a number, or of a record's whole numbers
};

/// The finaliser of splitmix64.
PACE_DEVICE std::uint64_t mixed(std::uint64_t seed, std::uint64_t at) {
    std::uint64_t x = seed + (at + 1) * 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
}

/// Of 24 bits, in [-1, 1).
PACE_DEVICE float uniform(std::uint32_t bits) {
    return static_cast<float>(static_cast<std::int32_t>(bits & 0xFFFFFFU) - 0x800000) *
           (1.0f / 8388608.0f);
}

PACE_DEVICE std::uint32_t row_major_word(const RandomArgs& args, std::uint64_t at) {
    const DeviceMatrix& w = args.matrix;
    const bool wide = w.type == WeightType::F32;
    const auto words_a_row = static_cast<std::uint64_t>(wide ? w.stride : w.stride / 2);
    const auto column = static_cast<int>(at % words_a_row) * (wide ? 1 : 2);
    const std::uint64_t bits = mixed(args.seed, at);
    const float first =
        column < w.inputs ? args.scale * uniform(static_cast<std::uint32_t>(bits >> 40U)) : 0.0f;
    if (wide) return bits_of(first);
    const float second =
        column + 1 < w.inputs ? args.scale * uniform(static_cast<std::uint32_t>(bits >> 8U)) : 0.0f;
    return two_bf16(first, second);
}

/// Whether place g or g + 8 of a tile is an output (gemm_records.hpp).
PACE_DEVICE bool has_output(const DeviceMatrix& w, int tile, int g, int half) {
    return w.paired ? 8 * tile + g < w.outputs : kTileOutputs * tile + g + 8 * half < w.outputs;
}

PACE_DEVICE std::uint32_t int8_word(
    const RandomArgs& args, int tile, int step, int word, std::uint64_t bits) {
    const DeviceMatrix& w = args.matrix;
    std::uint32_t made = 0;
    if (word >= 128) {  // scales of g and g + 8
        const int g = word - 128;
        const std::uint32_t scale = float_to_half(args.scale);
        if (has_output(w, tile, g, 0)) made |= scale;
        if (has_output(w, tile, g, 1)) made |= scale << 16U;
        return made;
    }
    const int g = word / 16;
    const int t = word / 4 % 4;
    const int first = 32 * step + 8 * t + 4 * (word % 2);
    if (!has_output(w, tile, g, word % 4 / 2)) return 0;
    for (int i = 0; i < 4 && first + i < w.inputs; ++i) {
        // 0 .. 254 less 127
        const std::uint32_t q =
            static_cast<std::uint32_t>((bits >> (16 * i)) & 0xFFFFU) * 255U >> 16U;
        made |= ((q - 127U) & 0xFFU) << (8 * i);
    }
    return made;
}

PACE_DEVICE std::uint32_t q4_word(
    const RandomArgs& args, int tile, int step, int word, std::uint64_t bits) {
    const DeviceMatrix& w = args.matrix;
    std::uint32_t made = 0;
    if (word >= 128) {
        const int g = (word - 128) / 4;
        const int part = word % 4 / 2;
        if (64 * step + 32 * part >= w.inputs) return 0;
        const float scale = half_to_float(float_to_half(args.scale));
        const std::uint32_t number = float_to_half(word % 2 == 0 ? scale : -kQ4Mean * scale);
        if (has_output(w, tile, g, 0)) made |= number;
        if (has_output(w, tile, g, 1)) made |= number << 16U;
        return made;
    }
    const int g = word / 16;
    const int t = word / 4 % 4;
    const int first = 64 * step + 32 * (word % 4 / 2) + 8 * t;
    if (!has_output(w, tile, g, word % 2)) return 0;
    for (int i = 0; i < 8 && first + i < w.inputs; ++i)
        made |= static_cast<std::uint32_t>((bits >> (8 * i)) & 0xFU) << (4 * i);
    return made;
}

PACE_KERNEL void random_words(RandomArgs args) {
    const DeviceMatrix& w = args.matrix;
    const auto width =
        static_cast<std::uint64_t>(grid_x()) * static_cast<std::uint64_t>(block_size());
    const auto words_a_record = static_cast<std::uint64_t>(record_bytes(w.type) / 4);
    const auto steps = static_cast<std::uint64_t>(steps_of(w.type, w.inputs));
    const bool records = w.type == WeightType::Int8 || w.type == WeightType::Q4;
    for (std::uint64_t at =
             static_cast<std::uint64_t>(block_x()) * static_cast<std::uint64_t>(block_size()) +
             static_cast<std::uint64_t>(thread_index());
         at < args.count; at += width) {
        if (!records) {
            args.words[at] = row_major_word(args, at);
            continue;
        }
        const std::uint64_t record = at / words_a_record;
        const auto word = static_cast<int>(at % words_a_record);
        const auto tile = static_cast<int>(record / steps);
        const auto step = static_cast<int>(record % steps);
        const std::uint64_t bits = mixed(args.seed, at);
        args.words[at] = w.type == WeightType::Int8 ? int8_word(args, tile, step, word, bits)
                                                    : q4_word(args, tile, step, word, bits);
    }
}

void launch_words(Stream& stream, const RandomArgs& args) {
    LaunchShape shape;
    const std::uint64_t blocks = (args.count + kThreads - 1) / kThreads;
    shape.blocks_x = static_cast<int>(blocks < kBlocksMax ? blocks : kBlocksMax);
    shape.threads = kThreads;
    if (args.count > 0) launch(stream, shape, random_words, args);
}

}  // namespace

void launch_random(Stream& stream, const DeviceMatrix& matrix, std::uint64_t seed) {
    RandomArgs args;
    args.matrix = matrix;
    args.seed = seed;
    // The caller's memory: a DeviceMatrix is what kernels may only read.
    const auto writable = [](const void* at) {
        return static_cast<std::uint32_t*>(const_cast<void*>(at));
    };
    args.words = writable(matrix.values);
    const float deviation = 1.0f / std::sqrt(static_cast<float>(matrix.inputs));
    if (matrix.type == WeightType::Int8 || matrix.type == WeightType::Q4) {
        args.scale = deviation / (matrix.type == WeightType::Q4 ? kQ4Deviation : kInt8Deviation);
        args.count = records_bytes(matrix.type, matrix.tiles(), matrix.inputs) / 4;
        launch_words(stream, args);
        return;
    }
    args.scale = deviation * kUniformScale;
    args.count = static_cast<std::uint64_t>(matrix.outputs) *
                 static_cast<std::uint64_t>(matrix.stride) * input_bytes(matrix.type) / 4;
    launch_words(stream, args);
    if (!matrix.paired) return;
    args.words = writable(matrix.second);
    args.seed = seed + 1;
    launch_words(stream, args);
}

}  // namespace paceline::cuda
