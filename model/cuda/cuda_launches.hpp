// CudaLaunches: the kernels of a sub-layer, put into the stream of one device.
//
// Each function launches what the device has to do of one step; it does nothing where the device
// has no part of the matrix. Between steps whose results all devices need there is a barrier,
// which is the caller's (cuda_group.hpp).
//
// Borrows the group and the tables of the batch. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "model/config.hpp"
#include "model/cuda/batch_tables.hpp"
#include "model/cuda/cuda_group.hpp"
#include "model/kernels/cuda/blas.hpp"

namespace paceline {

/// What launches depend on beside the tables: the stretch that is being launched.
struct CudaBatch {
    int rows = 0;             // of its grids
    int unit_rows = 1;        // of its attention units
    int attention_tiles = 1;  // of queries, that these units need
    bool one_split = false;
    // Whether hidden states go to the first device too: after the last sub-layer of a stretch.
    bool gathers = false;
};

class CudaLaunches {
public:
    CudaLaunches(const ModelConfig& config,
                 const CudaGroup& group,
                 const BatchTables& tables,
                 int rotated_pairs)
        : config_{config}, group_{group}, tables_{tables}, rotated_pairs_{rotated_pairs} {}

    /// exact = off: products of many rows by cuBLAS.
    void use_blas(std::unique_ptr<cuda::Blas> blas) { blas_ = std::move(blas); }
    [[nodiscard]] CudaBatch& now() { return now_; }
    [[nodiscard]] const CudaBatch& now() const { return now_; }
    /// How many rows the batch has, in the memory of a device.
    [[nodiscard]] const std::int32_t* rows(const CudaRank& rank) const {
        return tables_.on(rank.index()).rows;
    }

    /// The places where a device puts its columns of the input of `product`, on all devices.
    [[nodiscard]] cuda::NextInput input_for(const CudaRank& rank,
                                            const float* norm,
                                            const cuda::DeviceMatrix& product) const;
    [[nodiscard]] cuda::NextInput input_of_sublayer(const CudaRank& rank, int sublayer) const;
    /// A product with the rows of the batch.
    [[nodiscard]] cuda::GemmArgs product(const CudaRank& rank,
                                         const cuda::DeviceMatrix& weights,
                                         const void* x,
                                         int x_stride,
                                         bool normed) const;

    /// What the other devices have made of the input of `product`, where they do not reach this one
    /// (CudaGroup::take()); of the rows of the batch.
    void take_input(CudaRank& rank, const cuda::DeviceMatrix& product) const;
    void take_input_of_sublayer(CudaRank& rank, int sublayer) const;
    void take_mixed(CudaRank& rank, const CudaAttention& of) const;
    void take_gated(CudaRank& rank, const CudaLayer& layer) const;
    [[nodiscard]] CudaTakenRows taken_rows(const CudaRank& rank) const {
        return {tables_.on(rank.index()).rows, now_.rows};
    }

    void ready(CudaRank& rank,
               const std::int32_t* row_index,
               const std::int32_t* count,
               const cuda::NextInput& input,
               int rows) const;
    void mix(CudaRank& rank, const CudaAttention& of, const CudaCache& cache, int layer) const;
    void gates(CudaRank& rank, const CudaLayer& layer) const;
    void residual(CudaRank& rank,
                  const cuda::DeviceMatrix& weights,
                  const void* x,
                  const cuda::NextInput& next) const;

private:
    void multiply(CudaRank& rank, const cuda::GemmArgs& product) const;
    void rotate(CudaRank& rank, const CudaAttention& of, const CudaCache& cache, int layer) const;

    const ModelConfig& config_;
    const CudaGroup& group_;
    const BatchTables& tables_;
    int rotated_pairs_;
    std::unique_ptr<cuda::Blas> blas_;
    CudaBatch now_;
};

}  // namespace paceline
