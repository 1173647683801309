// SelfDraftState: the state of a target that drafts for itself, published as gauges of its process,
// so that it can be read while it decodes and after its end.
//
// Written by the first segment (actors/self_draft/self_draft_metrics.hpp), read by the figures of a
// run. A reader does not trust the gauges: if one is out of range the whole state is ignored. The
// gauges are written one after another, so one of them may be a verdict older than the next.
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
    int skipped_count = 0;   // sub-layers that a drafted row does not run
    std::optional<SkipSet> skipped = {};
};

/// Writes the gauges. Values beyond their ranges become the nearest within.
void show(Context& context, const SelfDraftState& state);
/// The state in the gauges of a process, for a model of `layers` layers. Nothing if none were
/// written, or one is out of range. `skipped` is empty for more layers than there are bits for, and
/// if its size differs from skipped_count, because it is being changed.
[[nodiscard]] std::optional<SelfDraftState> self_draft_state(
    const std::array<std::uint64_t, kGauges>& gauges, int layers);

}  // namespace paceline
