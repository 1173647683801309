// DeviceSampler: draws tokens where a backend computes, so that tokens are copied from its device
// instead of logits or hidden states. A backend may offer it (Backend::device_sampler()); without
// it, or for parameters that it does not know, the host draws from the logits of Backend::head()
// (model/sampling).
//
//     draw(hidden, jobs)        tokens after hidden states
//     run_and_draw(rows, ...)   layers, head and tokens in one call, with one wait for the device
//     ..._candidates            the same with the most probable tokens instead of one
//
// What is drawn has the bits of sample() and candidates() over the same logits.
//
// Part of its backend: owned by it, one call of either at a time, from the same thread.
// Preconditions are checked (PACE_CHECK).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/backend.hpp"
#include "model/sampling/candidates.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline {

/// What to draw after a hidden state: for the sequence position `position`.
struct DrawJob {
    const SamplingParams* params = nullptr;
    Position position = 0;
    int count = 1;  // candidates, at most
};

/// What run_and_draw() and run_and_draw_candidates() do after the layers.
struct BehindRows {
    std::span<const DrawJob> jobs = {};  // one per row; params == nullptr: nothing is drawn
    bool hidden = false;                 // the hidden states are returned too
};

class DeviceSampler {
public:
    DeviceSampler() = default;
    DeviceSampler(const DeviceSampler&) = delete;
    DeviceSampler& operator=(const DeviceSampler&) = delete;
    virtual ~DeviceSampler() = default;

    /// Whether it can draw with such parameters.
    [[nodiscard]] virtual bool draws(const SamplingParams& params) const = 0;
    /// The largest DrawJob::count of candidates.
    [[nodiscard]] virtual int candidates_max() const = 0;

    /// sample() of the final head's logits. `hidden` is [jobs, dim]; no value where no token can be
    /// drawn.
    /// Preconditions: has_head(Final), draws() is true for all parameters.
    virtual void draw(ConstHiddenRows hidden,
                      std::span<const DrawJob> jobs,
                      std::span<std::optional<TokenId>> tokens) = 0;
    /// candidates() of a head's logits, or listed_candidates() where it has a short list: the same
    /// tokens and the same bits of their log_prob.
    /// Preconditions: has_head(id), draws() is true for all parameters, counts up to
    /// candidates_max().
    virtual void draw_candidates(HeadId id,
                                 ConstHiddenRows hidden,
                                 std::span<const DrawJob> jobs,
                                 std::span<std::vector<Candidate>> best) = 0;

    /// Backend::run_layers(), then draw() after every row with a job, in one call; the results have
    /// the same bits as those of the two calls. tokens[r] belongs to row r and is unchanged if
    /// nothing is drawn for it. `hidden` is input for rows that start past sub-layer 0, and output
    /// if behind.hidden; otherwise it is undefined afterwards, and may be empty if all rows start
    /// at 0.
    /// Cancelled: as run_layers(). Preconditions: those of run_layers() and draw().
    virtual RunOutcome run_and_draw(std::span<const Row> rows,
                                    HiddenRows hidden,
                                    const BehindRows& behind,
                                    std::span<std::optional<TokenId>> tokens,
                                    const CancelToken* cancel) = 0;
    /// The same with draw_candidates().
    virtual RunOutcome run_and_draw_candidates(HeadId id,
                                               std::span<const Row> rows,
                                               HiddenRows hidden,
                                               const BehindRows& behind,
                                               std::span<std::vector<Candidate>> best,
                                               const CancelToken* cancel) = 0;
};

}  // namespace paceline
