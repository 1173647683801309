// SelfDraftMetrics: the counters of a target that drafts for itself, and its current state as
// gauges (self_draft_state.hpp). Used by SelfDraft.
//
// It only records. docs/observability.md, "Metrics of drafts that the target makes itself",
// defines the figures that are computed from these counters.
// Threads: the actor's loop.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "actors/decoding/token_tree.hpp"
#include "actors/self_draft/draft_chain.hpp"
#include "actors/self_draft/self_draft_host.hpp"
#include "actors/self_draft/self_draft_state.hpp"

namespace paceline {

class SelfDraftMetrics {
public:
    using Micros = std::chrono::microseconds;
    using OnAutoOff = std::function<void(bool drafts, double gain)>;

    /// Borrows the host, whose context is there from the first call on. `on_auto_off` (may be
    /// empty) is called when drafting is turned off or on.
    SelfDraftMetrics(const SelfDraftHost& host, OnAutoOff on_auto_off)
        : host_{host}, on_auto_off_{std::move(on_auto_off)} {}

    /// Submitted: so many rows that run this path.
    void pass(const DraftPath& path, std::size_t rows) const;
    void pass_took(Micros took) const;
    /// Rows of the job have run so many sub-layers, in all.
    void optimised(std::uint64_t sublayers, Micros took) const;
    /// A batch. `verifies`: it was not prefill alone.
    void run_took(bool verifies, Micros took) const;
    /// What a verdict did to the chain.
    void verified(const DraftChain& chain, const TreeUpdate& step) const;
    /// What the gauges say from now on.
    void show(const SelfDraftState& state);

private:
    const SelfDraftHost& host_;
    OnAutoOff on_auto_off_;
    bool drafts_ = true;  // as shown last
};

}  // namespace paceline
