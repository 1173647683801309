// CudaHeads: hidden states to logits, and to what is drawn from them.
//
// A head reads hidden states where they lie, by a table of its own: what is drawn, and from which
// rows. So it stands in the stream after the layers that make them, without a wait in between. Of
// several devices each has some of the logits; the first gets all of them, and draws.
//
// Owns the table's place on the host, with room for what was drawn. Borrows the rest. Used by one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/cuda/cuda_group.hpp"
#include "model/cuda/cuda_launches.hpp"
#include "model/device_sampler.hpp"
#include "model/kernels/cuda/runtime.hpp"

namespace paceline {

/// What is drawn after the rows of a batch: a token each, or candidates if these are not empty.
struct CudaDraws {
    const CudaHead* head = nullptr;
    std::span<const DrawJob> jobs = {};  // one for each row; those without params have none
    std::span<std::optional<TokenId>> tokens = {};
    std::span<std::vector<Candidate>> best = {};

    /// The rows with a job.
    [[nodiscard]] std::vector<int> asked() const;
};

class CudaHeads {
public:
    /// Of the table on a device, and of pinned memory, for calls of up to `rows` rows.
    [[nodiscard]] static std::uint64_t table_bytes(int rows);
    [[nodiscard]] static std::uint64_t staging_bytes(int rows);

    CudaHeads(const ModelConfig& config,
              const CudaGroup& group,
              const CudaLaunches& launches,
              int rows_max)
        : config_{config}, group_{group}, launches_{launches}, rows_max_{rows_max} {}
    /// False if there is no pinned memory.
    [[nodiscard]] bool make();

    /// The table of `rows` of the hidden states. Not before the copy before it is done.
    void send_rows(std::span<const int> rows);
    /// Logits of the `rows` hidden states that the table names, left on the first device.
    void launch(const CudaHead& head, int rows);
    /// The table of these rows of the hidden states and of what is drawn after them.
    void send_draws(const CudaDraws& draws, std::span<const int> rows);
    /// Head and draws by the table that was sent for these rows, and the copy of what was drawn.
    void launch_draws(const CudaDraws& draws, std::span<const int> rows);
    /// Once what was drawn after these rows is there.
    void take_drawn(const CudaDraws& draws, std::span<const int> rows) const;
    /// The head of a batch that was stopped has nothing to multiply either.
    void stop(CudaRank& rank) const;

private:
    [[nodiscard]] std::int32_t* table() const;
    void turn(CudaRank& rank, const CudaHead& head, int rows);
    void block(CudaRank& rank, const CudaHead& head, int rows);
    void output(CudaRank& rank, const CudaHead& head, int rows);

    const ModelConfig& config_;
    const CudaGroup& group_;
    const CudaLaunches& launches_;
    int rows_max_;
    cuda::PinnedMemory pinned_;
};

}  // namespace paceline
