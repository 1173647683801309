// CpuAdapter: an exit's adapter (adapter_spec.hpp) on the kernels of a CPU backend.
//
// It is a segment of one attention sub-layer, with its own Forward, weights, and store of keys and
// values under the same slots as the segment's. Commits, scratch slots and copies of a slot's keys
// (Backend::read_kv) do not include it. Memory that no row has written holds zeros: such a key has
// the score 0.
//
// Borrows the kernels and the team. Threads: as the backend that has it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/cpu/cpu_weights.hpp"
#include "model/cpu/forward.hpp"
#include "model/cpu/kv_store.hpp"

namespace paceline {

class CpuAdapter {
public:
    /// Preconditions: options.adapter is there and has been checked, and so has the rest.
    /// Errors: OutOfMemory.
    static Result<std::unique_ptr<CpuAdapter>> make(const ModelFile& file,
                                                    const CpuOptions& options,
                                                    const PackedMatrix& whole,
                                                    const KernelTable& kernels,
                                                    ThreadTeam& team);

    /// Backend::run_adapter(), with any number of rows.
    RunOutcome run(std::span<const Row> rows,
                   std::span<const float> hidden,
                   std::span<float> out,
                   const CancelToken* cancel);
    /// For at most rows_max rows.
    void head(const float* x, int rows, Logits logits);

    [[nodiscard]] const std::vector<TokenId>& tokens() const {
        return weights_.heads().front().tokens;
    }
    [[nodiscard]] MemoryUse memory_use() const {
        return {weights_.packed_bytes(), kv_.bytes(), forward_.workspace_bytes()};
    }

private:
    CpuAdapter(ModelConfig config,
               int rows_max,
               CpuWeights weights,
               KvStore kv,
               const KernelTable& kernels,
               ThreadTeam& team);

    ModelConfig config_;
    std::size_t rows_max_;
    CpuWeights weights_;
    KvStore kv_;
    Forward forward_;
    std::vector<Row> rows_;  // of one call
};

}  // namespace paceline
