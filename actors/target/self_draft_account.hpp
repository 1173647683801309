// SelfDraftAccount: what drafting for itself did, in the counters of the process, and what it is doing, in
// its gauges (protocol/self_draft_state.hpp). Used by SelfDraft.
//
// Nothing is decided here. docs/observability.md, "Accounts of drafts that the target makes itself",
// says what is made of it.
// Threads: the actor's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "actors/decoding/token_tree.hpp"
#include "actors/protocol/self_draft_state.hpp"
#include "actors/target/draft_chain.hpp"
#include "actors/target/segment_host.hpp"
#include "actors/target/segment_run.hpp"

namespace paceline {

class SelfDraftAccount {
public:
    using Micros = std::chrono::microseconds;
    using Told = std::function<void(bool drafts, double gain)>;

    /// Borrows the host, whose context is there from the first call on. `told` (may be empty) hears when
    /// drafting is turned off or on.
    SelfDraftAccount(SegmentHost& host, Told told) : host_{host}, told_{std::move(told)} {}

    /// Submitted: so many rows that run this path.
    void pass(const DraftPath& path, std::size_t rows) const;
    void pass_took(Micros took) const;
    /// Rows of the job have run so many sub-layers, in all.
    void optimised(std::uint64_t sublayers, Micros took) const;
    void run_took(const SegmentRun& run, Micros took) const;
    /// What a verdict did to the chain.
    void verified(const DraftChain& chain, const TreeStep& step) const;
    /// What the gauges say from now on.
    void show(const SelfDraftState& state);

private:
    SegmentHost& host_;
    Told told_;
    bool drafts_ = true;  // as shown last
};

}  // namespace paceline
