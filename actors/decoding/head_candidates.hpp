// HeadCandidates: the likeliest next tokens after hidden states, by a head of a backend: drawn on
// the device where it can, else from logits on the host.
//
// A call of the head takes at most kRowsOfCall hidden states, which bounds the logits in memory.
// Owns the logits' memory, that of gathered hidden states and the sampler's scratch. Threads: one
// job at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "model/backend.hpp"
#include "model/device_sampler.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

/// A hidden state, and which tokens are wanted after it.
struct HeadRow {
    RowSource hidden = {};
    SeenTokens seen = {};  // the text before the candidate, for penalties
    DrawJob job = {};
};

class HeadCandidates {
public:
    /// Borrows the backend.
    explicit HeadCandidates(Backend& backend);
    ~HeadCandidates();
    HeadCandidates(const HeadCandidates&) = delete;
    HeadCandidates& operator=(const HeadCandidates&) = delete;

    /// For each row the job.count best of the race after its hidden state, as candidates() gives
    /// them. Precondition: the backend has the head.
    [[nodiscard]] std::vector<std::vector<Candidate>> find(HeadId id,
                                                           std::span<const HeadRow> rows);

private:
    static constexpr std::size_t kRowsOfCall = 8;

    void find(HeadId id, std::span<const HeadRow> rows, std::span<std::vector<Candidate>> best);

    Backend& backend_;
    std::unique_ptr<SamplerScratch> scratch_;
    RowMemory hidden_;           // [kRowsOfCall, dim]
    std::vector<float> logits_;  // [kRowsOfCall, vocab], or [kRowsOfCall, listed tokens]
    std::vector<float> row_;     // [vocab]
};

}  // namespace paceline
