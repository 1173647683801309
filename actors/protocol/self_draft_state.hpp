// SelfDraftState: what a target that drafts for itself says of its draft, in the gauges of its process, so
// that it can be read while it decodes and after its end.
//
// Written by the first segment (actors/target/self_draft_account.hpp), read by the figures of a run. A
// reader takes each gauge as a claim: a state with a value out of range is no state. The gauges are
// written one after another, so one of them may be a verdict older than the next.
// Plain values; the writer is the actor's loop.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "model/skip_set.hpp"
#include "runtime/loop/context.hpp"
#include "runtime/observe/counters.hpp"

namespace paceline {

struct SelfDraftState {
    bool drafts = true;      // false: GainWatch lets rounds be decoded plainly
    double gain = 0.0;       // GainWatch::gain(); 0: not known
    double threshold = 0.0;  // of the stop rule; 0: there is none
    double matchness = 0.0;  // of the search's best set; 0: not measured, or no search
    int trials = 0;          // of the search
    int left_out_count = 0;  // sub-layers that a drafted row does not run
    std::optional<SkipSet> left_out = {};
};

/// Writes the gauges. Values beyond their ranges become the nearest within.
void show(Context& context, const SelfDraftState& state);
/// What the gauges of a process say, of a model of so many layers. Nothing if none were written, or one
/// is out of range. No `left_out` for more layers than there are bits for, and where its size is not
/// left_out_count: it is just being changed.
[[nodiscard]] std::optional<SelfDraftState> self_draft_state(
    const std::array<std::uint64_t, kGauges>& gauges, int layers);

}  // namespace paceline
