// What tests of products share: weights of every type as floats and on a device, rows, and y by the
// kernel. No state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "model/kernels/cuda/gemm_choice.hpp"
#include "model/kernels/cuda/gemm_records.hpp"
#include "tests/unit/cuda/device_arrays.hpp"

namespace paceline::cuda::test {

inline constexpr WeightType kTypes[] = {WeightType::F32, WeightType::BF16, WeightType::Int8,
                                        WeightType::Q4};

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

inline Weights make_weights(WeightType type, int outputs, int inputs, bool paired, unsigned seed) {
    Weights made;
    made.matrix.type = type;
    made.matrix.outputs = outputs;
    made.matrix.inputs = inputs;
    made.matrix.paired = paired;
    made.matrix.stride = (inputs + 31) / 32 * 32;  // as little as a loader may give
    const int all = paired ? 2 * outputs : outputs;
    made.values = random_floats(size_of(all * inputs), seed, 0.5f);
    if (type == WeightType::F32 || type == WeightType::BF16) {
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
    std::vector<std::byte> records(records_bytes(type, made.matrix.tiles(), inputs));
    for (int o = 0; o < all; ++o) {
        for (int group = 0; group < inputs / 32; ++group) {
            QuantGroup from;
            float* values = &made.values[size_of(o * inputs + 32 * group)];
            from.scale = float_to_half(0.01f * static_cast<float>(1 + (o + group) % 5));
            from.minimum = float_to_half(type == WeightType::Q4 ? -0.03f : 0.0f);
            const float scale = half_to_float(from.scale);
            const float minimum = half_to_float(from.minimum);
            const float top = type == WeightType::Q4 ? 15.0f : 127.0f;
            for (int i = 0; i < 32; ++i) {
                const float low = type == WeightType::Q4 ? 0.0f : -127.0f;
                const float q = std::clamp(std::round((values[i] - minimum) / scale), low, top);
                from.q[i] = static_cast<std::int8_t>(q);
                values[i] = scale * q + minimum;
            }
            const int place = paired ? paired_output(o % outputs, o >= outputs) : o;
            put_group(type, from, place, group, steps_of(type, inputs), records.data());
        }
    }
    made.memory = OnDevice<std::byte>{records};
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
    for (const int row_tiles : {1, 2, 4, 8}) {
        for (int tiles = 1; tiles <= tiles_max(type, row_tiles); ++tiles)
            choices.push_back({0, row_tiles, tiles, divided_up(rows, row_tiles * kTileRows)});
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
