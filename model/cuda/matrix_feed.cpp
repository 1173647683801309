#include "model/cuda/matrix_feed.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <iterator>
#include <span>
#include <utility>

#include "ipc/base/check.hpp"
#include "model/weights/finite.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/quantise.hpp"

namespace paceline {
namespace {

using cuda::QuantGroup;
using cuda::WeightType;

constexpr int kGroupInputs = 32;

bool is_row_major(WeightType type) {
    return type == WeightType::F32 || type == WeightType::BF16;
}

/// Whether blocks of the stored type are groups of `type` as they stand; those of a merged matrix are not.
bool keeps(const TensorView& tensor, WeightType type) {
    if (tensor.added != nullptr) return false;
    const StoredType stored = tensor.type;
    if (type == WeightType::Int8) return stored == StoredType::Q8_0;
    return type == WeightType::Q4 && (stored == StoredType::Q4_0 || stored == StoredType::Q4_1);
}

QuantGroup stored_group(const TensorView& tensor, std::int64_t row, int group) {
    const TypeTraits of = traits(tensor.type);
    const std::byte* block = tensor.row(row) + static_cast<std::size_t>(group) * of.block_bytes;
    QuantGroup to;
    std::memcpy(&to.scale, block, sizeof to.scale);
    if (tensor.type == StoredType::Q8_0) {
        std::memcpy(to.q, block + 2, sizeof to.q);
        return to;
    }
    std::size_t header = 2;
    if (tensor.type == StoredType::Q4_1) {
        std::memcpy(&to.minimum, block + 2, sizeof to.minimum);
        header = 4;
    } else {
        // d (n - 8): eight times a half is a half.
        to.minimum = float_to_half(-8.0f * half_to_float(to.scale));
    }
    for (std::size_t i = 0; i < 16; ++i) {
        const auto pair = static_cast<std::uint8_t>(block[header + i]);
        to.q[i] = static_cast<std::int8_t>(pair & 0xFU);
        to.q[i + 16] = static_cast<std::int8_t>(pair >> 4U);
    }
    return to;
}

/// Of a row that has just been copied.
bool finite_bfloats(const std::byte* row, std::size_t count) {
    bool finite = true;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, row + 2 * i, sizeof bits);
        finite = finite && is_finite_bfloat(bits);
    }
    return finite;
}

}  // namespace

QuantGroup quantised(WeightType type, const float* values, int count) {
    const QuantisedGroup from =
        type == WeightType::Q4 ? quantise_q4(values, count) : quantise_int8(values, count);
    QuantGroup to;
    std::copy(std::begin(from.q), std::end(from.q), to.q);
    to.scale = from.scale;
    to.minimum = from.minimum;
    return to;
}

MatrixFeed::MatrixFeed(WeightType type, std::vector<TensorView> tensors)
    : tensors_{std::move(tensors)} {
    shape_.type = type;
    for (const TensorView& tensor : tensors_) shape_.outputs += static_cast<int>(tensor.rows);
    measure();
}

MatrixFeed::MatrixFeed(WeightType type, const TensorView& tensor, std::vector<std::int64_t> list)
    : tensors_{tensor}, list_{std::move(list)} {
    shape_.type = type;
    shape_.outputs = static_cast<int>(list_.size());
    measure();
}

MatrixFeed MatrixFeed::paired(WeightType type, const TensorView& gate, const TensorView& up) {
    PACE_CHECK(gate.rows == up.rows && gate.cols == up.cols, "a pair has equal shapes");
    MatrixFeed feed{type, std::vector<TensorView>{gate, up}};
    feed.shape_.outputs = static_cast<int>(gate.rows);
    feed.shape_.paired = true;
    feed.measure();
    return feed;
}

void MatrixFeed::measure() {
    shape_.inputs = static_cast<int>(tensors_.front().cols);
    shape_.stride = (shape_.inputs + kGroupInputs - 1) / kGroupInputs * kGroupInputs;
    if (is_row_major(shape_.type)) {
        pieces_ = shape_.paired ? 2 * shape_.outputs : shape_.outputs;
        piece_bytes_ = static_cast<std::size_t>(shape_.stride) * cuda::input_bytes(shape_.type);
        return;
    }
    pieces_ = shape_.tiles();
    piece_bytes_ = cuda::records_bytes(shape_.type, 1, shape_.inputs);
}

cuda::DeviceMatrix MatrixFeed::at(const std::byte* base) const {
    cuda::DeviceMatrix matrix = shape_;
    matrix.values = base;
    if (matrix.paired && is_row_major(matrix.type))
        matrix.second = base + static_cast<std::size_t>(matrix.outputs) * piece_bytes_;
    return matrix;
}

std::string MatrixFeed::fill(int first, int last, std::byte* out) const {
    std::optional<Place> wrong;
    for (int piece = first; piece < last; ++piece, out += piece_bytes_) {
        const std::optional<Place> here =
            is_row_major(shape_.type) ? fill_row(piece, out) : fill_tile(piece, out);
        if (here) wrong = here;
    }
    if (!wrong) return {};
    return fmt::format("tensor {} holds a number that is not finite, in row {}",
                       quoted(wrong->tensor->name), wrong->row);
}

MatrixFeed::Place MatrixFeed::place_of(int output) const {
    std::int64_t row = output;
    if (!list_.empty()) return {&tensors_.front(), list_[static_cast<std::size_t>(output)]};
    for (const TensorView& tensor : tensors_) {
        if (row < tensor.rows) return {&tensor, row};
        row -= tensor.rows;
    }
    PACE_CHECK(false, "an output of one of the tensors");
    return {};
}

std::optional<MatrixFeed::Place> MatrixFeed::fill_row(int output, std::byte* out) const {
    const Place from = place_of(output);
    const auto columns = static_cast<std::size_t>(shape_.inputs);
    const bool kept = from.tensor->type == StoredType::BF16 && from.tensor->added == nullptr;
    if (kept && shape_.type == WeightType::BF16) {
        std::memcpy(out, from.tensor->row(from.row), 2 * columns);
        std::memset(out + 2 * columns, 0, piece_bytes_ - 2 * columns);
        return finite_bfloats(out, columns) ? std::nullopt : std::optional{from};
    }
    thread_local std::vector<float> values;
    values.assign(static_cast<std::size_t>(shape_.stride), 0.0f);
    dequantize_row(*from.tensor, from.row, std::span{values}.first(columns));
    const std::optional<Place> wrong = all_finite(values) ? std::nullopt : std::optional{from};
    if (shape_.type == WeightType::F32) {
        std::memcpy(out, values.data(), piece_bytes_);
        return wrong;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint16_t bits = float_to_bfloat(values[i]);
        std::memcpy(out + 2 * i, &bits, sizeof bits);
    }
    return wrong;
}

std::optional<MatrixFeed::Place> MatrixFeed::fill_tile(int tile, std::byte* out) const {
    std::memset(out, 0, piece_bytes_);
    std::optional<Place> wrong;
    const auto put = [&](int output, int o) {
        const Place from = place_of(output);
        if (!put_row(from, o, out)) wrong = from;
    };
    const int of_one = shape_.paired ? 8 : cuda::kTileOutputs;
    for (int o = 0; o < of_one; ++o) {
        const int output = tile * of_one + o;
        if (output >= shape_.outputs) break;
        put(output, o);
        if (shape_.paired) put(shape_.outputs + output, o + 8);
    }
    return wrong;
}

/// One output's groups into place `o` of a tile.
bool MatrixFeed::put_row(const Place& from, int o, std::byte* tile) const {
    const int steps = cuda::steps_of(shape_.type, shape_.inputs);
    const int groups = (shape_.inputs + kGroupInputs - 1) / kGroupInputs;
    const bool kept = keeps(*from.tensor, shape_.type);
    thread_local std::vector<float> values;
    if (!kept) {
        values.resize(static_cast<std::size_t>(shape_.inputs));
        dequantize_row(*from.tensor, from.row, values);
    }
    bool finite = kept || all_finite(values);
    for (int group = 0; group < groups; ++group) {
        const int first = group * kGroupInputs;
        const QuantGroup numbers = kept ? stored_group(*from.tensor, from.row, group)
                                        : quantised(shape_.type, values.data() + first,
                                                    std::min(kGroupInputs, shape_.inputs - first));
        finite = finite && is_finite_half(numbers.scale) && is_finite_half(numbers.minimum);
        cuda::put_group(shape_.type, numbers, o, group, steps, tile);
    }
    return finite;
}

}  // namespace paceline
