// Activations: the rows of a matrix product's input, rounded or quantised for its weights.
//
// Rows are grouped into panels of 8, 4, 2 or 1 (the binary digits of the row count), and inside
// a panel the rows stand side by side, so that a kernel reads one contiguous stream:
//
//     F32    [cols][width] float32
//     BF16   [cols/2][width][2] bfloat16
//     Int8   [cols/4][width][4] int8, and per group of 32: scale, sum, count, half [groups][width]
//
// AMX kernels read rows one after the other: all rows of BF16, and of Int8 as many whole panels of
// 16 as there are (the rows that remain are packed as above):
//
//     BF16   [rows][cols] bfloat16
//     Int8   [16][cols] int8, and scale, sum, count, half [groups][16]
//
// cols is padded with zeros to a multiple of 64 (a pair of groups). How a row is rounded depends on
// that row alone. Int8: scale = max|x| / 127 per group of 32, as Q8_0 does it.
//
// Activations owns the memory, sized once; PackedRows is a view of it with a shape.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "model/kernels/cpu/packed_matrix.hpp"

namespace paceline {

enum class ActivationType : std::uint8_t { F32, BF16, Int8 };

[[nodiscard]] constexpr ActivationType activation_for(PackedType weights) {
    if (weights == PackedType::F32 || weights == PackedType::F16) return ActivationType::F32;
    return weights == PackedType::BF16 ? ActivationType::BF16 : ActivationType::Int8;
}

/// A run of rows that a kernel takes together.
struct Panel {
    int first_row;
    int width;  // 8, 4, 2 or 1; 16 for AMX
};

inline constexpr int kPanelRows = 8;
inline constexpr int kWideRows = 16;  // of a panel for AMX

/// The panel that holds row `row` of `rows`.
[[nodiscard]] constexpr Panel panel_of(int row, int rows) {
    int first = row / kPanelRows * kPanelRows;
    if (rows - first >= kPanelRows) return {first, kPanelRows};
    for (int width = kPanelRows / 2; width > 0; width /= 2) {
        if (rows - first >= width) {
            if (row < first + width) return {first, width};
            first += width;
        }
    }
    return {first, 1};
}
static_assert(panel_of(9, 11).first_row == 8 && panel_of(9, 11).width == 2);
static_assert(panel_of(10, 11).first_row == 10 && panel_of(10, 11).width == 1);

/// Columns [first, last) of a row; first is a multiple of kPair, last too unless it is the end of
/// the row (then the rest of its pair is packed as zeros).
struct Columns {
    int first;
    int last;
};

/// Memory that starts on a cache line.
template <class T>
class AlignedArray {
public:
    AlignedArray() = default;
    explicit AlignedArray(std::size_t count)
        : data_{static_cast<T*>(::operator new (count * sizeof(T) + 64, std::align_val_t{64}))},
          count_{count} {
        for (std::size_t i = 0; i < count; ++i) data_.get()[i] = T{};
    }
    [[nodiscard]] T* data() { return data_.get(); }
    [[nodiscard]] const T* data() const { return data_.get(); }
    [[nodiscard]] std::size_t size() const { return count_; }

private:
    struct Free {
        void operator()(T* p) const { ::operator delete (p, std::align_val_t{64}); }
    };
    std::unique_ptr<T, Free> data_;
    std::size_t count_ = 0;
};

/// Packed rows of one shape in the caller's memory: a value that each thread makes for itself.
/// Rows may be packed by different threads; who reads them waits for all.
class PackedRows {
public:
    PackedRows() = default;
    PackedRows(ActivationType type,
               int rows,
               int groups,
               std::uint8_t* bytes,
               float* scales,
               float* sums,
               std::int32_t* counts,
               std::int32_t* halves)
        : type_{type},
          rows_{rows},
          groups_{groups},
          bytes_{bytes},
          scales_{scales},
          sums_{sums},
          counts_{counts},
          halves_{halves} {}

    [[nodiscard]] ActivationType type() const { return type_; }
    [[nodiscard]] int rows() const { return rows_; }
    [[nodiscard]] int groups() const { return groups_; }

    [[nodiscard]] float* f32(Panel p) const { return at<float>(p); }
    [[nodiscard]] std::uint16_t* bf16(Panel p) const { return at<std::uint16_t>(p); }
    /// Of rows that lie one after the other.
    [[nodiscard]] std::uint16_t* bf16_row(int row) const { return bf16({row, 1}); }
    [[nodiscard]] std::int8_t* int8(Panel p) const { return at<std::int8_t>(p); }
    [[nodiscard]] float* scales(Panel p) const { return scales_ + offset(p) / kGroup; }
    /// scale * (sum of the group's quants): what a weight minimum is multiplied with.
    [[nodiscard]] float* sums(Panel p) const { return sums_ + offset(p) / kGroup; }
    /// The sum of the group's quants.
    [[nodiscard]] std::int32_t* counts(Panel p) const { return counts_ + offset(p) / kGroup; }
    /// The sum of the first half of the group's quants.
    [[nodiscard]] std::int32_t* halves(Panel p) const { return halves_ + offset(p) / kGroup; }

    /// The rows from `first_row` on, a multiple of kPanelRows, as rows of their own. Not of F32.
    [[nodiscard]] PackedRows from(int first_row) const {
        const std::ptrdiff_t at = offset({first_row, kPanelRows});
        const std::ptrdiff_t group = at / kGroup;
        return {type_,           rows_ - first_row, groups_,         bytes_ + at,
                scales_ + group, sums_ + group,     counts_ + group, halves_ + group};
    }

private:
    [[nodiscard]] std::ptrdiff_t offset(Panel p) const {
        return static_cast<std::ptrdiff_t>(p.first_row) * groups_ * kGroup;
    }
    template <class T>
    [[nodiscard]] T* at(Panel p) const {
        return reinterpret_cast<T*>(bytes_) + offset(p);
    }

    ActivationType type_ = ActivationType::F32;
    int rows_ = 0;
    int groups_ = 0;
    std::uint8_t* bytes_ = nullptr;
    float* scales_ = nullptr;
    float* sums_ = nullptr;
    std::int32_t* counts_ = nullptr;
    std::int32_t* halves_ = nullptr;
};

/// Memory for packed rows of any type and shape up to rows_max x cols_max.
class Activations {
public:
    Activations() = default;
    Activations(int rows_max, int cols_max)
        : bytes_(static_cast<std::size_t>(rows_max) * padded(cols_max) * 4),
          scales_(static_cast<std::size_t>(rows_max) * padded(cols_max) / kGroup),
          sums_(scales_.size()),
          counts_(scales_.size()),
          halves_(scales_.size()) {}

    [[nodiscard]] std::size_t capacity() const { return bytes_.size(); }
    [[nodiscard]] PackedRows shaped(ActivationType type, int rows, int cols) {
        return {type,           rows,           static_cast<int>(padded(cols)) / kGroup,
                bytes_.data(),  scales_.data(), sums_.data(),
                counts_.data(), halves_.data()};
    }

private:
    static std::size_t padded(int cols) {
        return static_cast<std::size_t>((cols + kPair - 1) / kPair) * kPair;
    }

    AlignedArray<std::uint8_t> bytes_;
    AlignedArray<float> scales_;
    AlignedArray<float> sums_;
    AlignedArray<std::int32_t> counts_;
    AlignedArray<std::int32_t> halves_;
};

}  // namespace paceline
