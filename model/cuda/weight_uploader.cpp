#include "model/cuda/weight_uploader.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "ipc/base/check.hpp"
#include "model/kernels/cuda/gemm/gemm_records.hpp"
#include "model/weights/finite.hpp"
#include "model/weights/gguf/gguf_codes.hpp"
#include "model/weights/gguf/gguf_groups.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/quantise.hpp"
#include "model/weights/synthetic/synthetic_rows.hpp"

namespace paceline {
namespace {

using cuda::WeightType;

constexpr int kGroupInputs = 32;

/// Quantises a group of `x`; codes and scales as a file's blocks have them.
StoredCodes made_codes(WeightType type, const float* x, int count) {
    const bool int8 = type == WeightType::Int8;
    const QuantisedGroup from = int8 ? quantise_int8(x, count) : quantise_q4(x, count);
    StoredCodes codes;
    codes.d = from.scale;
    codes.minimum = from.minimum;
    for (std::size_t i = 0; i < codes.codes.size(); ++i)
        codes.codes[i] = static_cast<std::uint8_t>(from.q[i] + (int8 ? 128 : 0));
    return codes;
}

/// The file's group as int8 without rounding; nothing if its type or its scale does not allow that.
std::optional<StoredCodes> fitting_codes(const TensorView& tensor,
                                         std::int64_t row,
                                         int group,
                                         WeightType type) {
    if (type != WeightType::Int8 || tensor.added != nullptr || !has_int8_form(tensor.type))
        return std::nullopt;
    const std::optional<QuantisedGroup> stored = stored_int8_group(tensor, row, group);
    if (!stored) return std::nullopt;
    StoredCodes codes;
    codes.d = stored->scale;
    for (std::size_t i = 0; i < codes.codes.size(); ++i)
        codes.codes[i] = static_cast<std::uint8_t>(stored->q[i] + 128);
    return codes;
}

std::vector<CudaShare> all_rows(const std::vector<TensorView>& tensors) {
    std::vector<CudaShare> rows;
    for (const TensorView& tensor : tensors) rows.push_back({0, static_cast<int>(tensor.rows)});
    return rows;
}

/// Whether the bf16 numbers of a copied row are finite.
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

WeightUploader::WeightUploader(WeightType type, std::vector<TensorView> tensors)
    : WeightUploader{type, tensors, all_rows(tensors)} {}

WeightUploader::WeightUploader(WeightType type,
                               std::vector<TensorView> tensors,
                               std::vector<CudaShare> rows)
    : tensors_{std::move(tensors)}, rows_{std::move(rows)} {
    PACE_CHECK(tensors_.size() == rows_.size(), "some rows of each tensor");
    shape_.type = type;
    for (const CudaShare& of_one : rows_) shape_.outputs += of_one.count;
    measure();
}

WeightUploader::WeightUploader(WeightType type,
                               const TensorView& tensor,
                               std::vector<std::int64_t> list,
                               int first)
    : tensors_{tensor}, rows_{{first, static_cast<int>(list.size())}}, list_{std::move(list)} {
    shape_.type = type;
    shape_.outputs = static_cast<int>(list_.size());
    measure();
}

WeightUploader WeightUploader::paired(WeightType type,
                                      const TensorView& gate,
                                      const TensorView& up) {
    return paired(type, gate, up, {0, static_cast<int>(gate.rows)});
}

WeightUploader WeightUploader::paired(WeightType type,
                                      const TensorView& gate,
                                      const TensorView& up,
                                      const CudaShare& rows) {
    PACE_CHECK(gate.rows == up.rows && gate.cols == up.cols, "a pair has equal shapes");
    WeightUploader feed{type, std::vector<TensorView>{gate, up},
                        std::vector<CudaShare>{rows, rows}};
    feed.shape_.outputs = rows.count;
    feed.shape_.paired = true;
    feed.measure();
    return feed;
}

void WeightUploader::measure() {
    shape_.inputs = static_cast<int>(tensors_.front().cols);
    shape_.stride = (shape_.inputs + kGroupInputs - 1) / kGroupInputs * kGroupInputs;
    if (cuda::is_row_major(shape_.type)) {
        pieces_ = shape_.paired ? 2 * shape_.outputs : shape_.outputs;
        piece_bytes_ = static_cast<std::size_t>(shape_.stride) * cuda::input_bytes(shape_.type);
        return;
    }
    pieces_ = shape_.tiles();
    piece_bytes_ = cuda::tile_bytes(shape_.type, shape_.inputs);
}

cuda::DeviceMatrix WeightUploader::at(const std::byte* base) const {
    cuda::DeviceMatrix matrix = shape_;
    matrix.values = base;
    if (matrix.paired && cuda::is_row_major(matrix.type))
        matrix.second = base + static_cast<std::size_t>(matrix.outputs) * piece_bytes_;
    return matrix;
}

std::string WeightUploader::fill(int first, int last, std::byte* out) const {
    std::optional<Place> wrong;
    for (int piece = first; piece < last; ++piece, out += piece_bytes_) {
        const std::optional<Place> here =
            cuda::is_row_major(shape_.type) ? fill_row(piece, out) : fill_tile(piece, out);
        if (here) wrong = here;
    }
    if (!wrong) return {};
    return fmt::format("tensor {} holds a number that is not finite, in row {}",
                       quoted_text(wrong->tensor->name), wrong->row);
}

WeightUploader::Place WeightUploader::place_of(int output) const {
    if (!list_.empty()) return {&tensors_.front(), list_[static_cast<std::size_t>(output)]};
    int row = output;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        if (row < rows_[i].count) return {&tensors_[i], rows_[i].first + row};
        row -= rows_[i].count;
    }
    PACE_CHECK(false, "an output of one of the tensors");
    return {};
}

std::optional<WeightUploader::Place> WeightUploader::fill_row(int output, std::byte* out) const {
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

std::optional<WeightUploader::Place> WeightUploader::fill_tile(int tile, std::byte* out) const {
    cuda::empty_tile(shape_.type, shape_.inputs, out);
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

/// Writes the groups of one output to place `o` of a tile.
bool WeightUploader::put_row(const Place& from, int o, std::byte* tile) const {
    const TensorView& tensor = *from.tensor;
    if (tensor.added == nullptr && tensor.type == stored_type(shape_.type))
        return copy_row(from, o, tile);
    PACE_CHECK(shape_.type == WeightType::Int8 || shape_.type == WeightType::Q4,
               "a block type holds blocks of its own stored type alone");
    const int groups = (shape_.inputs + kGroupInputs - 1) / kGroupInputs;
    thread_local std::vector<float> values;
    values.resize(static_cast<std::size_t>(shape_.inputs));
    dequantize_row(tensor, from.row, values);
    bool finite = all_finite(values);
    for (int group = 0; group < groups; ++group) {
        const int first = group * kGroupInputs;
        std::optional<StoredCodes> codes = fitting_codes(tensor, from.row, group, shape_.type);
        if (!codes)
            codes = made_codes(shape_.type, values.data() + first,
                               std::min(kGroupInputs, shape_.inputs - first));
        finite = finite && is_finite_group(shape_.type, *codes);
        cuda::put_group(shape_.type, *codes, o, group, shape_.inputs, tile);
    }
    return finite;
}

/// The blocks of a row; valid until this thread calls it again.
const std::byte* WeightUploader::blocks_of(const Place& from) const {
    const TensorView& tensor = *from.tensor;
    if (!seed_) return tensor.row(from.row);
    thread_local std::vector<std::byte> made;
    made.resize(tensor.bytes / static_cast<std::size_t>(tensor.rows));
    random_row(tensor.type, random_seed(*seed_, tensor.name), from.row,
               static_cast<int>(tensor.cols), made);
    return made.data();
}

/// put_row() for a row whose stored type is the one that shape_.type keeps.
bool WeightUploader::copy_row(const Place& from, int o, std::byte* tile) const {
    const TypeTraits shape = traits(from.tensor->type);
    const int in_block = static_cast<int>(shape.block_elements) / kGroupInputs;
    const std::byte* block = blocks_of(from);
    bool finite = true;
    for (int group = 0; group < shape_.inputs / kGroupInputs; ++group) {
        StoredCodes codes;
        stored_codes(from.tensor->type, std::span{&block, 1}, group % in_block,
                     std::span{&codes, 1});
        finite = finite && is_finite_group(shape_.type, codes);
        cuda::put_group(shape_.type, codes, o, group, shape_.inputs, tile);
        if (group % in_block + 1 == in_block) block += shape.block_bytes;
    }
    return finite;
}

}  // namespace paceline
