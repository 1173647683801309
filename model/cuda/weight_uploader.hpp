// WeightUploader: reads a matrix of a file piece by piece, in the layout of the device.
//
// A piece is a row (row-major types) or a tile of 16 outputs (records). Rows may come from several
// tensors, one after the other (q, k, v), from two side by side (gate and up), or from a list of
// one tensor's rows (a short list); from all rows of a tensor, or some of them (CudaPart). bf16
// rows of a bf16 file are copied unchanged; blocks of a file keep their codes and scales, in
// another order.
//
// Borrows the tensors. Several threads may fill different pieces after use_synthetic_rows(), if
// that is called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/cuda/cuda_part.hpp"
#include "model/kernels/cuda/gemm/gemm.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

class WeightUploader {
public:
    /// Rows of all `tensors`, one tensor after the other. They have equal columns.
    WeightUploader(cuda::WeightType type, std::vector<TensorView> tensors);
    /// Rows rows[i] of tensors[i], one tensor after the other.
    WeightUploader(cuda::WeightType type,
                   std::vector<TensorView> tensors,
                   std::vector<CudaShare> rows);
    /// Rows `list` of one tensor, a part of a longer list that begins at its entry `first`.
    WeightUploader(cuda::WeightType type,
                   const TensorView& tensor,
                   std::vector<std::int64_t> list,
                   int first = 0);
    /// Two tensors of equal shape, to be computed side by side.
    static WeightUploader paired(cuda::WeightType type,
                                 const TensorView& gate,
                                 const TensorView& up);
    /// The same with some rows of both.
    static WeightUploader paired(cuda::WeightType type,
                                 const TensorView& gate,
                                 const TensorView& up,
                                 const CudaShare& rows);

    /// fill() generates the rows of these tensors, which have no bytes, from `seed`
    /// (model/weights/synthetic). For block types, which cuda::launch_random() does not generate.
    void use_synthetic_rows(std::uint64_t seed) { seed_ = seed; }

    /// The matrix without its address. A row-major paired one has its second half after the first.
    [[nodiscard]] const cuda::DeviceMatrix& shape() const { return shape_; }
    [[nodiscard]] int pieces() const { return pieces_; }
    [[nodiscard]] std::size_t piece_bytes() const { return piece_bytes_; }
    [[nodiscard]] std::size_t bytes() const {
        return static_cast<std::size_t>(pieces_) * piece_bytes_;
    }
    /// Where the matrix lies once its pieces stand at `base`.
    [[nodiscard]] cuda::DeviceMatrix at(const std::byte* base) const;

    /// Writes pieces [first, last) to `out`. Returns a sentence about a row with a number that is
    /// not finite, also as the scale or minimum of a block; empty: there is none.
    [[nodiscard]] std::string fill(int first, int last, std::byte* out) const;
    [[nodiscard]] const std::vector<TensorView>& tensors() const { return tensors_; }
    /// Of each tensor, which of its rows; of a list, which of its entries.
    [[nodiscard]] const std::vector<CudaShare>& rows() const { return rows_; }

private:
    struct Place {
        const TensorView* tensor;
        std::int64_t row;
    };
    void measure();
    [[nodiscard]] Place place_of(int output) const;
    // Each: a place whose numbers are not all finite.
    [[nodiscard]] std::optional<Place> fill_row(int output, std::byte* out) const;
    [[nodiscard]] std::optional<Place> fill_tile(int tile, std::byte* out) const;
    // Each: whether all numbers are finite.
    [[nodiscard]] bool put_row(const Place& from, int o, std::byte* tile) const;
    [[nodiscard]] bool copy_row(const Place& from, int o, std::byte* tile) const;

    [[nodiscard]] const std::byte* blocks_of(const Place& from) const;

    std::vector<TensorView> tensors_;
    std::vector<CudaShare> rows_;
    std::optional<std::uint64_t> seed_;  // of synthetic rows
    std::vector<std::int64_t> list_;
    cuda::DeviceMatrix shape_;
    int pieces_ = 0;
    std::size_t piece_bytes_ = 0;
};

}  // namespace paceline
