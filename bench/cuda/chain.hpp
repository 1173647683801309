// Chain: rows that follow one another after a context, as those of a batch of verification do;
// through whatever segment a backend holds. Borrows the backend. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "model/backend.hpp"
#include "model/device_sampler.hpp"
#include "model/kernels/cuda/gemm/gemm.hpp"

namespace paceline::bench {

class Chain {
public:
    explicit Chain(Backend& backend)
        : backend_{backend}, slots_(static_cast<std::size_t>(backend.kv_slots())) {
        std::iota(slots_.begin(), slots_.end(), 0);
    }

    /// Positions context .. context + count - 1. They point into this object.
    [[nodiscard]] std::vector<Row> rows(int context, int count) const {
        std::vector<Row> rows;
        for (int i = 0; i < count; ++i) {
            const Position position = context + i;
            // Any tokens will do, as long as they are spread over the embedding table.
            const auto token =
                static_cast<TokenId>((static_cast<std::uint64_t>(position) * 7919 + 31) %
                                     static_cast<std::uint64_t>(backend_.config().vocab_size));
            rows.push_back({.token = token,
                            .position = position,
                            .slot = position,
                            .prefix_slots = slots_.data(),
                            .prefix_count = position + 1,
                            .first = 2 * backend_.first_layer(),
                            .last = 2 * backend_.last_layer()});
        }
        return rows;
    }

    /// Puts the keys and values of positions 0 .. context - 1 into the cache.
    void fill(int context) {
        for (int first = 0; first < context; first += cuda::kGemmRowsMax)
            (void)seconds(first, std::min(cuda::kGemmRowsMax, context - first));
    }

    /// Seconds that the caller of run_layers() waits for `count` rows after `context` keys.
    [[nodiscard]] double seconds(int context, int count) {
        const std::vector<Row> batch = rows(context, count);
        hidden_.resize(batch.size() * static_cast<std::size_t>(backend_.config().dim));
        const auto begin = std::chrono::steady_clock::now();
        backend_.run_layers(batch, hidden_, nullptr);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

    /// The same for a greedy token after each row, which is all that the caller gets.
    [[nodiscard]] double drawn_seconds(int context, int count) {
        const std::vector<Row> batch = rows(context, count);
        std::vector<DrawJob> jobs;
        for (const Row& row : batch) jobs.push_back({&greedy_, row.position + 1});
        std::vector<std::optional<TokenId>> tokens(batch.size());
        const bool begins = backend_.first_layer() == 0;
        hidden_.resize(begins ? 0 : batch.size() * static_cast<std::size_t>(backend_.config().dim));
        const auto begin = std::chrono::steady_clock::now();
        backend_.device_sampler()->run_and_draw(batch, hidden_, {.jobs = jobs}, tokens, nullptr);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

private:
    Backend& backend_;
    SamplingParams greedy_;
    std::vector<KvSlot> slots_;
    std::vector<float> hidden_;
};

}  // namespace paceline::bench
