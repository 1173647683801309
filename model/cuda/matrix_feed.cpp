#include "model/cuda/matrix_feed.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "ipc/base/check.hpp"
#include "model/weights/finite.hpp"
#include "model/weights/gguf/gguf_groups.hpp"
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

QuantGroup quant_group(const QuantisedGroup& from) {
    QuantGroup to;
    std::copy(std::begin(from.q), std::end(from.q), to.q);
    to.scale = from.scale;
    to.minimum = from.minimum;
    return to;
}

/// Whether blocks of the stored type are groups of `type` as they stand; those of a merged matrix are not.
bool keeps(const TensorView& tensor, WeightType type) {
    if (tensor.added != nullptr) return false;
    return type == WeightType::Int8 ? has_int8_form(tensor.type)
                                    : type == WeightType::Q4 && has_q4_form(tensor.type);
}

/// Nothing: the group has to be made of its numbers.
std::optional<QuantGroup> stored_group(const TensorView& tensor,
                                       std::int64_t row,
                                       int group,
                                       WeightType type) {
    const std::optional<QuantisedGroup> stored = type == WeightType::Int8
                                                     ? stored_int8_group(tensor, row, group)
                                                     : stored_q4_group(tensor, row, group);
    if (!stored) return std::nullopt;
    return quant_group(*stored);
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
    return quant_group(from);
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
    values.clear();
    bool finite = true;
    const auto made_anew = [&](int first) {
        if (values.empty()) {
            values.resize(static_cast<std::size_t>(shape_.inputs));
            dequantize_row(*from.tensor, from.row, values);
            finite = finite && all_finite(values);
        }
        return quantised(shape_.type, values.data() + first,
                         std::min(kGroupInputs, shape_.inputs - first));
    };
    for (int group = 0; group < groups; ++group) {
        std::optional<QuantGroup> stored;
        if (kept) stored = stored_group(*from.tensor, from.row, group, shape_.type);
        const QuantGroup numbers = stored ? *stored : made_anew(group * kGroupInputs);
        finite = finite && is_finite_half(numbers.scale) && is_finite_half(numbers.minimum);
        cuda::put_group(shape_.type, numbers, o, group, steps, tile);
    }
    return finite;
}

}  // namespace paceline
