// Kernels on rows (rows.hpp). None of them moves more than a row's few kilobytes: simple ones.
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm/gemm_codes.cuh"
#include "model/kernels/cuda/gemm/gemm_finish.cuh"
#include "model/kernels/cuda/gemm/gemm_records.hpp"
#include "model/kernels/cuda/gemm/gemm_steps.cuh"
#include "model/kernels/cuda/launch.cuh"
#include "model/kernels/cuda/row_count.cuh"
#include "model/kernels/cuda/rows.hpp"

namespace paceline::cuda {
namespace {

constexpr int kThreads = 128;

PACE_DEVICE float half_at(const unsigned char* at) {
    return half_to_float(*reinterpret_cast<const std::uint16_t*>(at));
}

/// A code of a record: output g or g + 8 of the tile, input i of the eight of lane 4g + t.
PACE_DEVICE int code_at(
    WeightType type, const unsigned char* record, int g, int half, int part, const LaneInput& of) {
    const BlockFormat format = block_format(type);
    const auto field = [&](const unsigned char* plane, int bits) {
        const CodePlace at = code_place(type, bits, part, half, of.i);
        const unsigned char* lane_at = plane + (4 * g + of.t) * plane_bytes(bits);
        return lane_at[4 * at.word + at.bit / 8] >> at.bit % 8 & ((1 << bits) - 1);
    };
    const int low = field(record, format.low_bits);
    if (format.top_bits == 0) return low;
    return low | field(record + record_parts(type).top, format.top_bits) << format.low_bits;
}

/// As code_number(), whose tables lie in host memory: these are constants of the kernel.
PACE_DEVICE float number_of_code(const BlockFormat& format, int code) {
    constexpr std::array<std::int8_t, 16> kIq4 = kIq4Table;
    constexpr std::array<std::int8_t, 16> kMxfp4 = kMxfp4Table;
    if (format.table == CodeTable::Iq4) return static_cast<float>(kIq4[code]);
    if (format.table == CodeTable::Mxfp4) return static_cast<float>(kMxfp4[code]);
    return static_cast<float>(code - format.offset);
}

/// The scale of a group, and the minimum that is added to its numbers.
struct ScaleAt {
    float scale;
    float minimum;
};
/// Of inputs 16 h .. 16 h + 15 of group `part`; `scales` and `head` point to those of outputs g and
/// g + 8.
PACE_DEVICE ScaleAt scale_at(WeightType type,
                             const unsigned char* scales,
                             const unsigned char* head,
                             int half,
                             int part,
                             int h) {
    const ScaleForm form = block_format(type).form;
    const auto with_sign = [scales](int at) {
        return static_cast<float>(static_cast<std::int8_t>(scales[at]));
    };
    const float d = has_head(form) ? half_at(head + 2 * half) : 0.0f;
    const float dmin = has_head(form) && has_minimum(form) ? half_at(head + 4 + 2 * half) : 0.0f;
    switch (form) {
        case ScaleForm::Half:
            return {half_at(scales + 4 * part + 2 * half), 0.0f};
        case ScaleForm::HalfMinimum:
            return {half_at(scales + 8 * part + 2 * half),
                    half_at(scales + 8 * part + 4 + 2 * half)};
        case ScaleForm::Power:
            return {power_of(scales[2 * part + half]), 0.0f};
        case ScaleForm::Block:
            return {d * with_sign(2 * part + half), 0.0f};
        case ScaleForm::BlockHalves:
            return {d * with_sign(4 * part + 2 * h + half), 0.0f};
        case ScaleForm::BlockMinimum:
            return {d * static_cast<float>(scales[4 * part + half]),
                    dmin * static_cast<float>(scales[4 * part + 2 + half])};
        case ScaleForm::BlockMinima:
            break;
    }
    const int both = scales[4 * part + 2 * h + half];
    return {d * static_cast<float>(both & 15), dmin * static_cast<float>(both >> 4)};
}

/// Weight (o, k) of a matrix of records.
PACE_DEVICE float record_value(const DeviceMatrix& w, int o, int k) {
    const WeightType type = w.type;
    const BlockFormat format = block_format(type);
    const auto* tile = static_cast<const unsigned char*>(w.values) +
                       static_cast<std::size_t>(o / kTileOutputs) * tile_bytes(type, w.inputs);
    const unsigned char* record =
        tile + static_cast<std::size_t>(k / step_inputs(type)) * record_bytes(type);
    const unsigned char* heads =
        tile + static_cast<std::size_t>(steps_of(type, w.inputs)) * record_bytes(type);
    const int g = o % 8;
    const int half = o % kTileOutputs / 8;
    const int part = k % step_inputs(type) / 32;
    const int code = code_at(type, record, g, half, part, lane_input(type, k % 32));
    const ScaleAt of =
        scale_at(type, record + record_parts(type).scales + g * scale_bytes(type),
                 heads + (k / kHeadInputs * 8 + g) * head_bytes(type), half, part, k % 32 / 16);
    const float product = of.scale * number_of_code(format, code);
    return has_minimum(format.form) ? product + of.minimum : product;
}

PACE_DEVICE float weight_at(const DeviceMatrix& w, int o, int k) {
    const std::size_t at = static_cast<std::size_t>(o) * static_cast<std::size_t>(w.stride) +
                           static_cast<std::size_t>(k);
    switch (w.type) {
        case WeightType::F32:
            return static_cast<const float*>(w.values)[at];
        case WeightType::BF16:
            return bf16_to_float(static_cast<const std::uint16_t*>(w.values)[at]);
        default:
            return record_value(w, o, k);
    }
}

PACE_KERNEL void embed(EmbedArgs args) {
    wait_for_previous();
    let_next_start();
    const int row = block_x();
    if (row >= rows_of(args.rows)) return;
    if (args.tokens[row] < 0) return;
    const int place = args.tokens[row] - args.first_token;
    if (place < 0 || place >= args.table.outputs) return;
    const int dim = args.table.inputs;
    const std::size_t begin = static_cast<std::size_t>(row) * static_cast<std::size_t>(dim);
    for (int k = thread_index(); k < dim; k += block_size()) {
        const float value = weight_at(args.table, place, k);
        const std::size_t at = begin + static_cast<std::size_t>(k);
        args.hidden[at] = value;
        put_others(args.other_hidden, args.others, [&](float* hidden) { hidden[at] = value; });
    }
}

PACE_KERNEL void ready(ReadyArgs args) {
    wait_for_previous();
    let_next_start();
    const int row = block_x();
    if (row >= rows_of(args.rows)) return;
    const float* hidden = args.hidden + static_cast<std::size_t>(args.row_index[row]) *
                                            static_cast<std::size_t>(args.dim);
    const int columns = args.columns > 0 ? args.columns : args.dim;
    // Whole warps go round: make_ready() sums over sixteen lanes.
    for (int first = 0; first < columns; first += block_size()) {
        const int column = first + thread_index();
        const bool valid = column < columns;
        make_ready(args.next, row, column, valid ? hidden[column] : 0.0f, valid);
    }
}

/// One element of a cache.
PACE_DEVICE void put_cached(std::byte* at, CacheType type, std::size_t index, float value) {
    switch (type) {
        case CacheType::F32:
            reinterpret_cast<float*>(at)[index] = value;
            return;
        case CacheType::F16:
            reinterpret_cast<std::uint16_t*>(at)[index] = float_to_half(value);
            return;
        case CacheType::BF16:
            reinterpret_cast<std::uint16_t*>(at)[index] = float_to_bf16(value);
            return;
    }
}

/// 1 / rms of a head whose dimension d is `of(d)`; one warp.
template <class Of>
PACE_DEVICE float head_factor(int head_dim, float epsilon, Of of) {
    float sum = 0.0f;
    for (int d = lane(); d < head_dim; d += 32) sum += of(d) * of(d);
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    return rsqrt(sum / static_cast<float>(head_dim) + epsilon);
}

/// One head of one row per block of one warp: heads of q, then of k, then of v.
PACE_KERNEL void rotate(RotateArgs args) {
    wait_for_previous();
    let_next_start();
    const int row = block_x();
    const int head = block_y();
    if (row >= rows_of(args.rows)) return;
    const int dim = args.head_dim;
    const bool is_query = head < args.heads;
    const bool is_key = !is_query && head < args.heads + args.kv_heads;
    float* x = args.qkv +
               static_cast<std::size_t>(row) * static_cast<std::size_t>(args.qkv_stride) +
               static_cast<std::size_t>(head * dim);
    const float* bias = args.bias == nullptr ? nullptr : args.bias + head * dim;
    const float* norm = is_query ? args.q_norm : is_key ? args.k_norm : nullptr;
    const auto biased = [&](int d) { return bias == nullptr ? x[d] : x[d] + bias[d]; };
    const float factor = norm == nullptr ? 1.0f : head_factor(dim, args.epsilon, biased);
    const auto input = [&](int d) {
        const float value = biased(d);
        return norm == nullptr ? value : value * factor * norm[d];
    };
    const std::size_t angles =
        static_cast<std::size_t>(args.positions[row]) * static_cast<std::size_t>(args.pairs);
    // A turned pair is (first, second); a lane has both, reads both, then writes.
    const int pairs = is_query || is_key ? args.pairs : 0;
    float* turned = shared_memory<float>(0);
    for (int p = lane(); p < pairs; p += 32) {
        const int first = args.pairing == Pairing::Adjacent ? 2 * p : p;
        const int second = args.pairing == Pairing::Adjacent ? 2 * p + 1 : p + args.pairs;
        const float a = input(first);
        const float b = input(second);
        const float c = args.cosines[angles + static_cast<std::size_t>(p)];
        const float s = args.sines[angles + static_cast<std::size_t>(p)];
        turned[first] = a * c - b * s;
        turned[second] = a * s + b * c;
    }
    for (int d = 2 * pairs + lane(); d < dim; d += 32) turned[d] = input(d);
    sync_warp();
    if (is_query) {
        for (int d = lane(); d < dim; d += 32) x[d] = turned[d];
        return;
    }
    const int kv_head = is_key ? head - args.heads : head - args.heads - args.kv_heads;
    const int slot = args.slots[row];
    const std::size_t half_page = static_cast<std::size_t>(kPageSlots) *
                                  static_cast<std::size_t>(dim) * cache_element_bytes(args.type);
    const std::size_t page =
        (static_cast<std::size_t>(slot / kPageSlots) * static_cast<std::size_t>(args.layers) +
         static_cast<std::size_t>(args.layer)) *
            static_cast<std::size_t>(args.kv_heads) +
        static_cast<std::size_t>(kv_head);
    std::byte* at = args.cache + (2 * page + (is_key ? 0 : 1)) * half_page;
    for (int d = lane(); d < dim; d += 32) {
        put_cached(at, args.type, static_cast<std::size_t>(slot % kPageSlots * dim + d), turned[d]);
    }
}

PACE_KERNEL void add_silu(AddSiluArgs args) {
    wait_for_previous();
    let_next_start();
    const int row = block_x();
    if (row >= rows_of(args.rows)) return;
    const auto dim = static_cast<std::size_t>(args.dim);
    const float factor = norm_factor(args.norm, row);
    const float* hidden = args.hidden + static_cast<std::size_t>(args.row_index[row]) * dim;
    const float* turned = args.turned + static_cast<std::size_t>(row) * dim;
    const int columns = args.columns > 0 ? args.columns : args.dim;
    for (int c = thread_index(); c < columns; c += block_size()) {
        const float n = hidden[c] * args.weights[c] * factor;
        put_input(args.next, row, c, n + silu(turned[c]));
    }
}

PACE_KERNEL void norm_factors(NormFactorsArgs args) {
    wait_for_previous();
    let_next_start();
    const int row = block_x() * block_size() / 32 + warp();
    if (row >= rows_of(args.rows)) return;
    const float factor = norm_factor(args.norm, row);
    if (lane() == 0) args.factors[row] = factor;
}

LaunchShape one_block_a_row(int rows_max, int threads) {
    LaunchShape shape;
    shape.blocks_x = rows_max;
    shape.threads = threads;
    shape.overlaps_previous = true;
    return shape;
}

}  // namespace

void launch_embed(Stream& stream, const EmbedArgs& args, int rows_max) {
    launch(stream, one_block_a_row(rows_max, kThreads), embed, args);
}

void launch_ready(Stream& stream, const ReadyArgs& args, int rows_max) {
    launch(stream, one_block_a_row(rows_max, kThreads), ready, args);
}

void launch_add_silu(Stream& stream, const AddSiluArgs& args, int rows_max) {
    launch(stream, one_block_a_row(rows_max, kThreads), add_silu, args);
}

void launch_norm_factors(Stream& stream, const NormFactorsArgs& args, int rows_max) {
    LaunchShape shape = one_block_a_row((rows_max + kThreads / 32 - 1) / (kThreads / 32), kThreads);
    launch(stream, shape, norm_factors, args);
}

void launch_rotate(Stream& stream, const RotateArgs& args, int rows_max) {
    LaunchShape shape = one_block_a_row(rows_max, 32);
    shape.blocks_y = args.heads + 2 * args.kv_heads;
    shape.shared_bytes = static_cast<std::size_t>(args.head_dim) * sizeof(float);
    launch(stream, shape, rotate, args);
}

}  // namespace paceline::cuda
