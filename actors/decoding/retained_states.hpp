// RetainedStates: the hidden states that a segment has passed on, kept by KV slot, so that after
// the loss of a segment behind it nothing before the lost one runs again:
//
//     segment 1          segment 2 (retains)     segment 3 (was lost)     segment 4
//     row passes         row gets the state      row runs its layers      has its keys:
//     through            of its slot             again                    sees no row
//
// The dispatcher chooses: such a row begins (BatchRow::start) where the layers of the retaining
// segment end, so neither it nor the segments before it run any layer. A state is as good as the
// keys of its slot: both are written when the row runs, by the same job. A segment that was lost
// since has neither (lost_keys.hpp), and only slots below RetainedBy::slots have one.
//
// Owns the memory, where the backend computes. Threads: keep() is called by the job of a run,
// state_of() between jobs.
#pragma once

#include <cstdint>
#include <span>

#include "ipc/base/ids.hpp"
#include "model/backend.hpp"
#include "model/placed_span.hpp"
#include "model/rows.hpp"

namespace paceline {

/// What a dispatcher knows of a segment that retains states.
struct RetainedBy {
    StageId stage;
    std::uint32_t end = 0;   // the first sub-layer behind its layers
    std::int32_t slots = 0;  // that have a state: those below
};

class RetainedStates {
public:
    /// Borrows the backend. Throws as Backend::make_rows().
    RetainedStates(Backend& backend, std::int32_t slots);
    RetainedStates(const RetainedStates&) = delete;
    RetainedStates& operator=(const RetainedStates&) = delete;

    /// The job has run the layers: `hidden` [rows, dim]. Rows that passed through, with no input
    /// and no layer to run, change nothing; one that a draft has computed here has its input.
    /// Neither do rows that are stale by `watch`: the layers may have left them out half-way, and
    /// their slots may hold a text that others share.
    void keep(std::span<const Row> rows,
              std::span<const RowSource> inputs,
              ConstHiddenRows hidden,
              const CancelToken::RowWatch& watch);
    [[nodiscard]] bool has(KvSlot slot) const { return slot < slots_; }
    /// Precondition: has(slot), and a row of that slot was kept.
    [[nodiscard]] RowSource state_of(KvSlot slot) const {
        return {states_.rows, static_cast<std::size_t>(slot)};
    }

private:
    [[nodiscard]] bool takes(const Row& row, const RowSource& input, bool stale) const;

    Backend& backend_;
    std::int32_t slots_;
    RowMemory states_;  // [slots, dim]
};

}  // namespace paceline
