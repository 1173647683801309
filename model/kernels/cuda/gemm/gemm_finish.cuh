// What follows a product, one tile of 16 outputs and one row at a time (gemm.hpp: Finish).
//
// Sixteen neighbouring lanes have one output each. Sums over the tile go through a fixed tree of
// shuffles, so a row's sum of squares has the same bits with every kernel that writes the row.
#pragma once

#include <type_traits>

#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/gemm/gemm.hpp"

namespace paceline::cuda {

/// The sum of sixteen lanes' values, in every one of them.
PACE_DEVICE float sum_of_16(float value) {
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}

/// Calls `put` with the place of each other device: `places` has `others` of them.
template <class T, class Put>
PACE_DEVICE void put_others(T* const (&places)[kOthersMax], int others, const Put& put) {
    if (others == 0) return;
#pragma unroll
    for (int i = 0; i < kOthersMax; ++i) {
        if (i < others) put(places[i]);
    }
}

/// One element of the next product's input.
PACE_DEVICE void put_input(const NextInput& next, int row, int column, float value) {
    const std::size_t at = static_cast<std::size_t>(row) * static_cast<std::size_t>(next.stride) +
                           static_cast<std::size_t>(column);
    if (next.wide) {
        static_cast<float*>(next.x)[at] = value;
        put_others(next.other_x, next.others, [&](void* x) { static_cast<float*>(x)[at] = value; });
    } else {
        const std::uint16_t bits = float_to_bf16(value);
        static_cast<std::uint16_t*>(next.x)[at] = bits;
        put_others(next.other_x, next.others,
                   [&](void* x) { static_cast<std::uint16_t*>(x)[at] = bits; });
    }
}

/// Element `column` of a row whose value there is `h`: the next product's input, and the tile's
/// sum of squares. All 32 lanes call it; `valid`: whether the element exists; `weight`: the norm's
/// for this column if it has been loaded, else nullptr.
PACE_DEVICE void make_ready(const NextInput& next,
                            int row,
                            int column,
                            float h,
                            bool valid,
                            const float* weight = nullptr) {
    const float squares = sum_of_16(valid ? h * h : 0.0f);
    if (!valid) return;
    float value = h;
    if (next.weights != nullptr) value *= weight != nullptr ? *weight : next.weights[column];
    put_input(next, row, column, value);
    if (next.squares != nullptr && column % kTileOutputs == 0) {
        const auto tiles = static_cast<std::size_t>(tiles_of(next.stride));
        const std::size_t at =
            static_cast<std::size_t>(row) * tiles + static_cast<std::size_t>(column / kTileOutputs);
        next.squares[at] = squares;
        put_others(next.other_squares, next.others, [&](float* other) { other[at] = squares; });
    }
}

/// 1 / rms of a row. All 32 lanes call it and all get it.
PACE_DEVICE float norm_factor(const RowNorm& norm, int row) {
    if (norm.squares == nullptr) return 1.0f;
    if (norm.factors != nullptr) return norm.factors[row];
    const float* squares =
        norm.squares + static_cast<std::size_t>(row) * static_cast<std::size_t>(norm.count);
    float sum = 0.0f;
    for (int i = lane(); i < tiles_of(norm.dim); i += 32) sum += squares[i];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    return rsqrt(sum / static_cast<float>(norm.dim) + norm.epsilon);
}

PACE_DEVICE float silu(float x) {
    return x / (1.0f + exp(-x));
}

/// What the finish of one output reads beside its product, loaded before the product.
/// Only this thread writes the hidden state, so that it cannot change.
struct FinishInputs {
    int place;     // of the row in `out`
    float hidden;  // the element there
    float weight;  // of the norm in front of the next product
};

PACE_DEVICE int finish_place(const Finish& finish, int row, bool there) {
    return there && finish.kind == FinishKind::Residual ? finish.row_index[row] : 0;
}

/// An element of `out`.
PACE_DEVICE float* out_at(const Finish& finish, int place, int column) {
    return finish.out +
           static_cast<std::size_t>(place) * static_cast<std::size_t>(finish.out_stride) +
           static_cast<std::size_t>(column);
}

PACE_DEVICE FinishInputs
finish_inputs(const Finish& finish, int tile, int o, int place, int outputs, bool there) {
    const int column = tile * kTileOutputs + o;
    const bool residual = finish.kind == FinishKind::Residual;
    FinishInputs inputs{place, 0.0f, 0.0f};
    if (!there || column >= outputs) return inputs;
    if (residual) inputs.hidden = *out_at(finish, place, column);
    if ((residual || finish.kind == FinishKind::Input) && finish.next.weights != nullptr)
        inputs.weight = finish.next.weights[column];
    return inputs;
}

/// Output `o` of the tile for a row. All 32 lanes call it; `there`: whether the row exists;
/// `loaded`: finish_inputs() of this output, or nullptr to read them here.
template <FinishKind kKind>
PACE_DEVICE void finish_as(const Finish& finish,
                           int tile,
                           int o,
                           int row,
                           float y,
                           int outputs,
                           bool there,
                           const FinishInputs* loaded = nullptr) {
    const int column = tile * kTileOutputs + o;
    const bool valid = there && column < outputs;
    const float* weight = loaded != nullptr ? &loaded->weight : nullptr;
    if constexpr (kKind == FinishKind::Store) {
        if (valid)
            finish.out[static_cast<std::size_t>(row) * static_cast<std::size_t>(finish.out_stride) +
                       static_cast<std::size_t>(column)] = y;
    } else if constexpr (kKind == FinishKind::Residual) {
        float h = 0.0f;
        if (valid) {
            const int place = loaded != nullptr ? loaded->place : finish.row_index[row];
            float* hidden = out_at(finish, place, column);
            h = (loaded != nullptr ? loaded->hidden : *hidden) + y;
            *hidden = h;
            if (finish.out_also != nullptr) finish.out_also[hidden - finish.out] = h;
        }
        make_ready(finish.next, row, column, h, valid, weight);
    } else if constexpr (kKind == FinishKind::Input) {
        make_ready(finish.next, row, column, y, valid, weight);
    } else if constexpr (kKind == FinishKind::GatedBy) {
        if (valid) put_input(finish.next, row, column, silu(*out_at(finish, row, column)) * y);
    } else {
        const float up = shuffle_xor(y, 8);
        const int at = tile * 8 + o;
        if (there && o < 8 && at < outputs) put_input(finish.next, row, at, silu(y) * up);
    }
}

/// `call(constant)` with the kind as a type: std::integral_constant<FinishKind, kind>.
template <class Call>
PACE_DEVICE void with_kind(FinishKind kind, const Call& call) {
    switch (kind) {
        case FinishKind::Store:
            return call(std::integral_constant<FinishKind, FinishKind::Store>{});
        case FinishKind::Residual:
            return call(std::integral_constant<FinishKind, FinishKind::Residual>{});
        case FinishKind::Input:
            return call(std::integral_constant<FinishKind, FinishKind::Input>{});
        case FinishKind::Gated:
            return call(std::integral_constant<FinishKind, FinishKind::Gated>{});
        case FinishKind::GatedBy:
            return call(std::integral_constant<FinishKind, FinishKind::GatedBy>{});
    }
}

/// finish_as() with the kind of `finish`.
PACE_DEVICE void finish_output(const Finish& finish,
                               int tile,
                               int o,
                               int row,
                               float y,
                               int outputs,
                               bool there,
                               const FinishInputs* loaded = nullptr) {
    with_kind(finish.kind, [&](auto kind) {
        finish_as<decltype(kind)::value>(finish, tile, o, row, y, outputs, there, loaded);
    });
}

}  // namespace paceline::cuda
