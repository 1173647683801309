// DeviceSampler::run_and_draw() as two calls: the layers, then the draws. It is what the one call
// is compared with, and how a toy backend makes it.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ipc/base/check.hpp"
#include "model/backend.hpp"
#include "model/device_sampler.hpp"

namespace paceline::testing {

struct BackendAndSampler {
    Backend& backend;
    DeviceSampler& sampler;
};

/// The rows with a draw, and their hidden states as one contiguous block.
struct RowsToDraw {
    std::vector<std::size_t> rows = {};
    std::vector<DrawJob> jobs = {};
    RowMemory hidden = {};
};

/// Runs the layers. No value: cancelled.
inline std::optional<RowsToDraw> run_and_gather(Backend& backend,
                                                std::span<const Row> rows,
                                                HiddenRows hidden,
                                                const BehindRows& behind,
                                                const CancelToken* cancel) {
    PACE_CHECK(behind.jobs.size() == rows.size(), "a job for each row");
    RowMemory own;
    if (hidden.empty()) {
        own = backend.make_rows(rows.size());
        hidden = own.rows;
    }
    if (backend.run_layers(rows, hidden, cancel) == RunOutcome::Cancelled) return std::nullopt;
    RowsToDraw drawn;
    std::vector<RowSource> states;
    for (std::size_t r = 0; r < rows.size(); ++r) {
        if (behind.jobs[r].params == nullptr) continue;
        drawn.rows.push_back(r);
        drawn.jobs.push_back(behind.jobs[r]);
        states.push_back({hidden, r});
    }
    drawn.hidden = backend.make_rows(states.size());
    backend.gather(states, drawn.hidden.rows);
    return drawn;
}

inline RunOutcome run_then_draw(BackendAndSampler with,
                                std::span<const Row> rows,
                                HiddenRows hidden,
                                const BehindRows& behind,
                                std::span<std::optional<TokenId>> tokens,
                                const CancelToken* cancel) {
    const auto drawn = run_and_gather(with.backend, rows, hidden, behind, cancel);
    if (!drawn) return RunOutcome::Cancelled;
    std::vector<std::optional<TokenId>> own(drawn->rows.size());
    if (!own.empty()) with.sampler.draw(drawn->hidden.rows, drawn->jobs, own);
    for (std::size_t i = 0; i < own.size(); ++i) tokens[drawn->rows[i]] = own[i];
    return RunOutcome::Done;
}

inline RunOutcome run_then_draw_candidates(BackendAndSampler with,
                                           HeadId id,
                                           std::span<const Row> rows,
                                           HiddenRows hidden,
                                           const BehindRows& behind,
                                           std::span<std::vector<Candidate>> best,
                                           const CancelToken* cancel) {
    const auto drawn = run_and_gather(with.backend, rows, hidden, behind, cancel);
    if (!drawn) return RunOutcome::Cancelled;
    std::vector<std::vector<Candidate>> own(drawn->rows.size());
    if (!own.empty()) with.sampler.draw_candidates(id, drawn->hidden.rows, drawn->jobs, own);
    for (std::size_t i = 0; i < own.size(); ++i) best[drawn->rows[i]] = std::move(own[i]);
    return RunOutcome::Done;
}

}  // namespace paceline::testing
