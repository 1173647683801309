// What tests of products share: weights of every type as floats and on a device, rows, and y by the
// kernel. No state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "model/kernels/cuda/gemm/gemm_choice.hpp"
#include "model/kernels/cuda/gemm/gemm_records.hpp"
#include "model/weights/gguf/gguf_codes.hpp"
#include "tests/unit/cuda/device_arrays.hpp"

namespace paceline::cuda::test {

inline constexpr WeightType kTypes[] = {
    WeightType::F32,  WeightType::BF16, WeightType::Int8,  WeightType::Q4,    WeightType::Q4Sym,
    WeightType::Q5_0, WeightType::Q5_1, WeightType::Q2K,   WeightType::Q3K,   WeightType::Q4K,
    WeightType::Q5K,  WeightType::Q6K,  WeightType::IQ4NL, WeightType::IQ4XS, WeightType::MXFP4};

inline std::size_t size_of(int count) {
    return static_cast<std::size_t>(count);
}

/// Numbers that the type can hold, on the host as floats and on the device as the kernel wants.
struct Weights {
    std::vector<float> values;  // [outputs][inputs], of the second matrix after those of the first
    OnDevice<std::byte> memory;
    OnDevice<std::byte> second;
    DeviceMatrix matrix;
};

inline OnDevice<std::byte> row_major(const std::vector<float>& values,
                                     std::size_t first,
                                     int outputs,
                                     int inputs,
                                     int stride,
                                     WeightType type) {
    std::vector<std::byte> bytes(size_of(outputs * stride) * input_bytes(type));
    for (int o = 0; o < outputs; ++o) {
        for (int i = 0; i < inputs; ++i) {
            const float value = values[first + size_of(o * inputs + i)];
            const std::uint16_t bits = float_to_bfloat(value);
            std::byte* at = bytes.data() + size_of(o * stride + i) * input_bytes(type);
            if (type == WeightType::F32) {
                std::memcpy(at, &value, sizeof value);
            } else {
                std::memcpy(at, &bits, sizeof bits);
            }
        }
    }
    return OnDevice<std::byte>{bytes};
}

/// A group of random codes whose numbers are tenths; scales and minima differ between neighbours.
/// `d` and `minimum` are shared by 256 inputs in types that have heads.
inline StoredCodes random_codes(WeightType type, int o, int group, const float* random) {
    const BlockFormat format = block_format(type);
    const int block = has_head(format.form) ? group / 8 : group;
    const int codes = 1 << (format.low_bits + format.top_bits);
    StoredCodes made;
    for (std::size_t i = 0; i < made.codes.size(); ++i) {
        const int code = static_cast<int>((random[i] + 0.5f) * static_cast<float>(codes));
        made.codes[i] = static_cast<std::uint8_t>(std::clamp(code, 0, codes - 1));
    }
    const bool bytes = type == WeightType::Int8 || format.table == CodeTable::Iq4;
    const float step = (bytes ? 0.002f : 0.02f) * static_cast<float>(1 + (o + block) % 5);
    const float scale_most = format.form == ScaleForm::BlockHalves ? 128.0f : 32.0f;
    made.d = float_to_half(has_head(format.form) ? step / scale_most : step);
    if (has_minimum(format.form))
        made.minimum = float_to_half(0.003f * static_cast<float>((o + 2 * block) % 7));
    for (std::size_t h = 0; h < 2; ++h) {
        const int turn = has_halves(format.form) ? 2 * group + static_cast<int>(h) : group;
        // The whole range of the type: 4, 6 or 8 bits; for MXFP4 also the two subnormal powers.
        const int most = format.form == ScaleForm::BlockMinima ? 16 : 64;
        made.minimums[h] = static_cast<std::uint8_t>((o + 13 * turn) % most);
        made.scales[h] = static_cast<std::uint8_t>((7 * o + 11 * turn) % most);
        if (format.form == ScaleForm::Power)
            made.scales[h] =
                static_cast<std::uint8_t>(turn % 5 < 2 ? turn % 5 : 120 + (o + turn) % 4);
        if (format.form == ScaleForm::Block)
            made.scales[h] = static_cast<std::uint8_t>((7 * o + 11 * turn) % 64 - 32);
        if (format.form == ScaleForm::BlockHalves)
            made.scales[h] = static_cast<std::uint8_t>((37 * o + 51 * turn) % 256 - 128);
        if (!has_minimum(format.form) || !has_head(format.form)) made.minimums[h] = 0;
    }
    return made;
}

/// Number k of a group (model/weights/packed_type.hpp).
inline float number_of(WeightType type, const StoredCodes& from, std::size_t k) {
    const BlockFormat format = block_format(type);
    const float n = code_number(format, from.codes[k]);
    const float d = half_to_float(from.d);
    const float s = static_cast<float>(static_cast<std::int8_t>(from.scales[k / 16]));
    const float t = from.minimums[k / 16];
    switch (format.form) {
        case ScaleForm::Half:
            return d * n;
        case ScaleForm::HalfMinimum:
            return d * n + half_to_float(from.minimum);
        case ScaleForm::Power:
            return std::ldexp(n, from.scales[0] - 128);
        case ScaleForm::Block:
        case ScaleForm::BlockHalves:
            return d * s * n;
        case ScaleForm::BlockMinimum:
        case ScaleForm::BlockMinima:
            break;
    }
    return d * s * n - half_to_float(from.minimum) * t;
}

/// The place of output `o` of the first (gate) or second (up) matrix of a pair.
inline int paired_output(int o, bool second) {
    return o / 8 * kTileOutputs + o % 8 + (second ? 8 : 0);
}

inline Weights make_weights(WeightType type, int outputs, int inputs, bool paired, unsigned seed) {
    Weights made;
    made.matrix.type = type;
    made.matrix.outputs = outputs;
    made.matrix.inputs = inputs;
    made.matrix.paired = paired;
    made.matrix.stride = (inputs + 31) / 32 * 32;  // as little as a loader may give
    const int all = paired ? 2 * outputs : outputs;
    made.values = random_floats(size_of(all * inputs), seed, 0.5f);
    if (is_row_major(type)) {
        if (type == WeightType::BF16) {
            for (float& value : made.values) value = bfloat_to_float(float_to_bfloat(value));
        }
        made.memory = row_major(made.values, 0, outputs, inputs, made.matrix.stride, type);
        made.matrix.values = made.memory.data();
        if (paired) {
            made.second = row_major(made.values, size_of(outputs * inputs), outputs, inputs,
                                    made.matrix.stride, type);
            made.matrix.second = made.second.data();
        }
        return made;
    }
    const std::size_t bytes = tile_bytes(type, inputs);
    std::vector<std::byte> tiles(size_of(made.matrix.tiles()) * bytes);
    for (int tile = 0; tile < made.matrix.tiles(); ++tile)
        empty_tile(type, inputs, tiles.data() + size_of(tile) * bytes);
    for (int o = 0; o < all; ++o) {
        for (int group = 0; group < inputs / 32; ++group) {
            float* values = &made.values[size_of(o * inputs + 32 * group)];
            const StoredCodes from = random_codes(type, o, group, values);
            for (std::size_t k = 0; k < 32; ++k) values[k] = number_of(type, from, k);
            const int place = paired ? paired_output(o % outputs, o >= outputs) : o;
            put_group(type, from, place % kTileOutputs, group, inputs,
                      tiles.data() + size_of(place / kTileOutputs) * bytes);
        }
    }
    made.memory = OnDevice<std::byte>{tiles};
    made.matrix.values = made.memory.data();
    return made;
}

/// Rows as the kernel reads them; `values` become what the rounding leaves.
inline OnDevice<std::byte> make_rows(std::vector<float>& values,
                                     int rows,
                                     int inputs,
                                     WeightType type) {
    if (type != WeightType::F32) {
        for (float& value : values) value = bfloat_to_float(float_to_bfloat(value));
    }
    return row_major(values, 0, rows, inputs, padded_inputs(inputs),
                     type == WeightType::F32 ? WeightType::F32 : WeightType::BF16);
}

/// y of each row by the kernel that would be taken, or by the one of `choice`.
inline std::vector<float> multiply(const Weights& weights,
                                   std::vector<float> x,
                                   int rows,
                                   const GemmChoice* choice = nullptr) {
    const int inputs = weights.matrix.inputs;
    const OnDevice<std::byte> device_x = make_rows(x, rows, inputs, weights.matrix.type);
    const OnDevice<std::int32_t> count{{rows}};
    const OnDevice<float> out{
        std::vector<float>(size_of(rows * weights.matrix.outputs), std::nanf(""))};
    GemmArgs args;
    args.weights = weights.matrix;
    args.x = device_x.data();
    args.x_stride = padded_inputs(inputs);
    args.rows = count.data();
    args.finish.out = out.data();
    args.finish.out_stride = weights.matrix.outputs;
    Stream stream;
    if (choice != nullptr) {
        launch_gemm_as(stream, args, *choice, rows);
    } else {
        launch_gemm(stream, args, {rows});
    }
    stream.finish();
    return out.take();
}

/// Every way to multiply `rows` rows by a matrix of `type`.
inline std::vector<GemmChoice> all_choices(WeightType type, int rows) {
    std::vector<GemmChoice> choices;
    for (const int row_tiles : {1, 2, 4}) {
        if (batch_tiles(type, row_tiles) > 0)
            choices.push_back(batch_choice(type, row_tiles, rows));
    }
    if (type != WeightType::F32) {
        for (const int tile : {kSmallTile, kLargeTile}) choices.push_back({tile, 1, 1, 1});
    }
    if (type == WeightType::BF16 && has_wgmma(use_device(0))) {
        for (const int tile : {kSmallTile, kLargeTile}) choices.push_back({tile, 1, 1, 1, true});
    }
    return choices;
}

inline double expected(
    const std::vector<float>& w, const std::vector<float>& x, int o, int row, int n) {
    double sum = 0.0;
    for (int i = 0; i < n; ++i) {
        sum += static_cast<double>(w[size_of(o * n + i)]) *
               static_cast<double>(x[size_of(row * n + i)]);
    }
    return sum;
}

}  // namespace paceline::cuda::test
