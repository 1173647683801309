// CudaEagle: the features of an EAGLE draft (model/eagle_spec.hpp) on the devices of a backend, and
// the products over them.
//
//     put()     states of the target ── J, if features join several ──> features of slots
//     send()    which features the rows of a step read, and which they write
//     fuse()    hidden = F [hidden ; feature]       between the embedding and the first layer
//     keep()    feature = hidden                    after the last one
//
// F and J are multiplied as the matrices of layers are, by their outputs on several devices; their
// inputs are rounded to bf16, or stay float32 in a file of such matrices. Every device has all
// features: each writes its columns into the memory of all, so devices that do not reach each
// other are refused (cuda_ranks.hpp).
//
// Owns pinned memory for tables and states. Borrows the rest; the features lie in the workspace.
// Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/cuda/cuda_group.hpp"
#include "model/cuda/cuda_launches.hpp"
#include "model/cuda/cuda_options.hpp"
#include "model/kernels/cuda/runtime.hpp"

namespace paceline {

class CudaEagle {
public:
    /// Floats of one row of CudaWorkspace::fused: the widest input of the two products.
    [[nodiscard]] static int input_width(const EagleSpec& spec, int dim);
    /// Words of CudaWorkspace::steps, for batches of up to `rows`.
    [[nodiscard]] static std::size_t table_words(int rows);
    /// Of pinned memory.
    [[nodiscard]] static std::uint64_t staging_bytes(const EagleSpec& spec, int dim, int rows);

    /// Batches of up to `rows_max` rows.
    CudaEagle(const EagleSpec& spec,
              const ModelConfig& config,
              const CudaGroup& group,
              const CudaLaunches& launches,
              int rows_max);
    /// False if there is not so much pinned memory.
    [[nodiscard]] bool make(const EagleSpec& spec);

    /// As EagleLayer has them. put() waits for what the streams were given before, not for what it
    /// gives them itself: on several devices the others are joined before the next kernel.
    void put(std::span<const std::int32_t> slots, std::span<const float> states);
    void read(std::int32_t slot, std::span<float> to);

    /// For the rows of the tables that were sent, by row; negative: none.
    /// Precondition: the last copies have ended.
    void send(std::span<const std::int32_t> before, std::span<const std::int32_t> kept);
    // In the streams of all devices; the caller has them wait for each other.
    void fuse();
    void keep();

private:
    [[nodiscard]] std::int32_t* table() const { return pinned_.as<std::int32_t>(); }
    void join(CudaRank& rank, const std::int32_t* rows, int grid_rows);
    void multiply(CudaRank& rank,
                  const cuda::DeviceMatrix& matrix,
                  const std::int32_t* rows,
                  int grid_rows);
    void keep_rows(CudaRank& rank,
                   const std::int32_t* places,
                   const std::int32_t* rows,
                   int grid_rows);
    void put_batch(std::span<const std::int32_t> slots, std::span<const float> states);

    const ModelConfig& config_;
    const CudaGroup& group_;
    const CudaLaunches& launches_;
    std::size_t rows_max_;
    std::size_t width_;  // of the states that make one feature
    bool joins_;
    cuda::PinnedMemory pinned_;
};

}  // namespace paceline
