// Text: rows of one sequence through the layers of a backend, for tests of limits and cancellation.
//
// Owns slots, rows and hidden states; rows point to the slots. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline::testing {

/// The error with which `file` is refused.
inline Error refused(const ModelFile& file, CudaOptions options) {
    if (options.kv_slots == 0) options.kv_slots = 64;
    const Result<std::unique_ptr<CudaBackend>> backend = make_cuda_backend(file, options);
    REQUIRE_FALSE(backend.ok());
    return backend.error();
}

struct Text {
    std::vector<KvSlot> slots;
    std::vector<Row> rows;
    std::vector<float> hidden;

    /// Texts with different `first` tokens have different keys at every position.
    Text(const Backend& backend, Position count, TokenId first = 1)
        : slots{home_slots(static_cast<std::size_t>(count))} {
        for (Position p = 0; p < count; ++p)
            rows.push_back(sequence_row(backend, first + p % 100, p, slots));
        hidden.resize(rows.size() * static_cast<std::size_t>(backend.config().dim));
    }
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;
    RunOutcome run(Backend& backend, const CancelToken* cancel = nullptr) {
        return backend.run_layers(rows, hidden, cancel);
    }
};

/// Keys and values of each slot, as they are in the cache.
inline std::vector<std::vector<std::byte>> kv_of(const Backend& backend,
                                                 std::span<const KvSlot> slots) {
    std::vector<std::vector<std::byte>> all;
    for (const KvSlot slot : slots) {
        all.emplace_back(backend.kv_bytes());
        backend.read_kv(slot, all.back());
    }
    return all;
}

}  // namespace paceline::testing
