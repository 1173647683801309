// Random weights (random.hpp): a thread writes words of 4 bytes, wherever they are in the matrix.
#include <cmath>

#include "ipc/base/check.hpp"
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm/gemm_records.hpp"
#include "model/kernels/cuda/launch.cuh"
#include "model/kernels/cuda/random.hpp"
#include "model/weights/synthetic/synthetic_numbers.hpp"

namespace paceline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksMax = 4096;

struct RandomArgs {
    DeviceMatrix matrix;
    std::uint32_t* words = nullptr;
    std::uint64_t count = 0;  // of words
    RandomPart parts[kRandomPartsMax];
    float scale = 0.0f;  // of a unit, or of a record's steps
};

/// A row of a tensor.
struct Place {
    std::uint64_t seed;
    std::uint64_t row;
};

PACE_DEVICE Place place_of(const RandomArgs& args, int output) {
    int part = 0;
    while (part + 1 < kRandomPartsMax && output >= args.parts[part].outputs)
        output -= args.parts[part++].outputs;
    return {args.parts[part].seed, static_cast<std::uint64_t>(args.parts[part].first + output)};
}

PACE_DEVICE std::uint32_t row_major_word(const RandomArgs& args, std::uint64_t at) {
    const DeviceMatrix& w = args.matrix;
    const bool wide = w.type == WeightType::F32;
    const auto words_a_row = static_cast<std::uint64_t>(wide ? w.stride : w.stride / 2);
    const auto column = static_cast<int>(at % words_a_row) * (wide ? 1 : 2);
    if (column >= w.inputs) return 0;
    const Place from = place_of(args, static_cast<int>(at / words_a_row));
    const std::uint64_t draw = random_draw(from.seed, from.row, w.inputs, column);
    const float first = args.scale * random_unit(random_bits(draw, column));
    if (wide) return bits_of(first);
    const float second =
        column + 1 < w.inputs ? args.scale * random_unit(random_bits(draw, column + 1)) : 0.0f;
    return two_bf16(first, second);
}

/// Place g or g + 8 of a tile, as an output of the matrix (gemm/gemm_records.hpp).
PACE_DEVICE int output_of(const DeviceMatrix& w, int tile, int g, int half) {
    return w.paired ? 8 * tile + g : kTileOutputs * tile + g + 8 * half;
}

PACE_DEVICE Place place_of(const RandomArgs& args, int tile, int g, int half) {
    const int output = output_of(args.matrix, tile, g, half);
    if (!args.matrix.paired) return place_of(args, output);
    return {args.parts[half].seed, static_cast<std::uint64_t>(args.parts[half].first + output)};
}

PACE_DEVICE std::uint32_t int8_word(const RandomArgs& args, int tile, int step, int word) {
    const DeviceMatrix& w = args.matrix;
    std::uint32_t made = 0;
    if (word >= 128) {  // scales of g and g + 8
        const int g = word - 128;
        const std::uint32_t scale = float_to_half(args.scale);
        if (output_of(w, tile, g, 0) < w.outputs) made |= scale;
        if (output_of(w, tile, g, 1) < w.outputs) made |= scale << 16U;
        return made;
    }
    const int g = word / 16;
    const int half = word % 4 / 2;
    const int first = 32 * step + 8 * (word / 4 % 4) + 4 * (word % 2);
    constexpr std::uint32_t kZeros = 0x80808080U;  // a code is the number + 128
    if (output_of(w, tile, g, half) >= w.outputs || first >= w.inputs) return kZeros;
    const Place from = place_of(args, tile, g, half);
    const std::uint64_t draw = random_draw(from.seed, from.row, w.inputs, first);
    for (int i = 0; i < 4 && first + i < w.inputs; ++i) {
        const int q = random_int8(random_bits(draw, first + i));
        made |= (static_cast<std::uint32_t>(q) & 0xFFU) << (8 * i);
    }
    return made ^ kZeros;
}

PACE_DEVICE std::uint32_t q4_word(const RandomArgs& args, int tile, int step, int word) {
    const DeviceMatrix& w = args.matrix;
    std::uint32_t made = 0;
    if (word >= 128) {
        // Words of a g; of each of two groups the scales, then the minima if the type has them.
        const int words = scale_bytes(w.type) / 4;
        const int g = (word - 128) / words;
        const int group = (word - 128) % words * 2 / words;
        if (64 * step + 32 * group >= w.inputs) return 0;
        const float scale = half_to_float(float_to_half(args.scale));
        const std::uint32_t number =
            float_to_half(words == 2 || word % 2 == 0 ? scale : -kRandomInt4Mean * scale);
        if (output_of(w, tile, g, 0) < w.outputs) made |= number;
        if (output_of(w, tile, g, 1) < w.outputs) made |= number << 16U;
        return made;
    }
    const int g = word / 16;
    const int half = word % 2;
    const int first = 64 * step + 32 * (word % 4 / 2) + 8 * (word / 4 % 4);
    if (output_of(w, tile, g, half) >= w.outputs) return 0;
    const Place from = place_of(args, tile, g, half);
    std::uint64_t draw = 0;
    for (int i = 0; i < 8 && first + i < w.inputs; ++i) {
        const int column = first + i;
        if (i % kRandomColumns == 0) draw = random_draw(from.seed, from.row, w.inputs, column);
        const int n = random_int4(random_bits(draw, column));
        made |= static_cast<std::uint32_t>(n) << (4 * input_nibble(i));
    }
    return made;
}

PACE_KERNEL void random_words(RandomArgs args) {
    const DeviceMatrix& w = args.matrix;
    const auto width =
        static_cast<std::uint64_t>(grid_x()) * static_cast<std::uint64_t>(block_size());
    const auto words_a_record = static_cast<std::uint64_t>(record_bytes(w.type) / 4);
    const auto steps = static_cast<std::uint64_t>(steps_of(w.type, w.inputs));
    const bool records = !is_row_major(w.type);
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
        args.words[at] = w.type == WeightType::Int8 ? int8_word(args, tile, step, word)
                                                    : q4_word(args, tile, step, word);
    }
}

void launch_words(Stream& stream, const RandomArgs& args) {
    LaunchShape shape;
    const std::uint64_t blocks = (args.count + kThreads - 1) / kThreads;
    shape.blocks_x = static_cast<int>(blocks < kBlocksMax ? blocks : kBlocksMax);
    shape.threads = kThreads;
    if (args.count > 0) launch(stream, shape, random_words, args);
}

/// The caller's memory: a DeviceMatrix is what kernels may only read.
std::uint32_t* writable(const void* at) {
    return static_cast<std::uint32_t*>(const_cast<void*>(at));
}

}  // namespace

void launch_random(Stream& stream,
                   const DeviceMatrix& matrix,
                   const std::vector<RandomPart>& parts) {
    PACE_CHECK(
        matrix.paired ? parts.size() == 2 : !parts.empty() && parts.size() <= kRandomPartsMax,
        "two parts of a pair, else one to three");
    RandomArgs args;
    args.matrix = matrix;
    for (std::size_t i = 0; i < parts.size(); ++i) args.parts[i] = parts[i];
    args.words = writable(matrix.values);
    const float deviation = 1.0f / std::sqrt(static_cast<float>(matrix.inputs));
    if (!is_row_major(matrix.type)) {
        PACE_CHECK(!is_block_type(matrix.type), "block types are generated on the host");
        args.scale = deviation * (matrix.type == WeightType::Int8 ? kRandomInt8 : kRandomInt4);
        args.count =
            static_cast<std::uint64_t>(matrix.tiles()) * tile_bytes(matrix.type, matrix.inputs) / 4;
        launch_words(stream, args);
        return;
    }
    args.scale = deviation * kRandomUnit;
    args.count = static_cast<std::uint64_t>(matrix.outputs) *
                 static_cast<std::uint64_t>(matrix.stride) * input_bytes(matrix.type) / 4;
    launch_words(stream, args);
    if (!matrix.paired) return;
    args.words = writable(matrix.second);
    args.parts[0] = parts[1];
    launch_words(stream, args);
}

void launch_random(Stream& stream, const DeviceMatrix& matrix, std::uint64_t seed) {
    std::vector<RandomPart> parts{{seed, matrix.outputs}};
    if (matrix.paired) parts.push_back({seed + 1, matrix.outputs});
    launch_random(stream, matrix, parts);
}

}  // namespace paceline::cuda
