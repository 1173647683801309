// HeadCandidates: the likeliest next tokens after hidden states, by a head of a backend: drawn on the
// device where it can, else from logits on the host.
//
// Owns the logits' memory and the sampler's scratch. Threads: one job at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "model/backend.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

class HeadCandidates {
public:
    /// Hidden states of one call.
    static constexpr std::size_t kRows = 8;

    /// Borrows the backend.
    explicit HeadCandidates(Backend& backend);
    ~HeadCandidates();
    HeadCandidates(const HeadCandidates&) = delete;
    HeadCandidates& operator=(const HeadCandidates&) = delete;

    /// best[i]: the jobs[i].count best of the race after hidden state i, as candidates() gives them.
    /// `hidden` is [jobs, dim]; seen[i] is the text before the candidate, for penalties.
    /// Preconditions: the backend has the head; at most kRows jobs.
    void find(HeadId id,
              ConstHiddenRows hidden,
              std::span<const SeenTokens> seen,
              std::span<const DrawJob> jobs,
              std::span<std::vector<Candidate>> best);

private:
    Backend& backend_;
    std::unique_ptr<SamplerScratch> scratch_;
    std::vector<float> logits_;  // [kRows, vocab], or [kRows, listed tokens]
    std::vector<float> row_;     // [vocab]
};

}  // namespace paceline
