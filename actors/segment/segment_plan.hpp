// SegmentPlan: a segment's place in the target, its peers, and the options of its roles. Plain
// values.
#pragma once

#include <optional>
#include <vector>

#include "actors/decoding/retained_states.hpp"
#include "actors/segment/exit_options.hpp"
#include "actors/segment/scheduling/dispatch_options.hpp"
#include "actors/segment/states/feature_sender.hpp"
#include "actors/segment/states/residual_tap.hpp"
#include "actors/segment/verifier.hpp"
#include "actors/self_draft/self_draft_options.hpp"

namespace paceline {

struct SegmentPlan {
    int count = 1;                     // segments of the target
    std::optional<StageId> previous;   // absent for the first segment: a Dispatcher is attached
    std::optional<StageId> next;       // absent for the last: FinalVerify is attached
    std::optional<StageId> draft;      // whom `Sequential` and `Lockstep` wait for
    std::vector<StageId> speculative;  // draft and correct: their loss changes no attempt
    StageId verifier;                  // the last segment: whose verdicts count
    std::vector<StageId> verdict_to;   // the last segment: everyone who follows (not itself)
    DispatchOptions dispatch;         // read by the first segment; how large a batch may be, by all
    VerifyOptions verify;             // read by the last segment
    std::optional<ExitOptions> exit;  // present: EarlyVerify is attached
    std::optional<TapOptions> tap;    // present: ResidualTap is attached
    std::optional<FeatureOptions> features;      // of the last segment: FeatureSender is attached
    std::optional<SelfDraftOptions> self_draft;  // of the first segment: SelfDraft is attached
    bool free_candidates = false;                // no model and no exit proposes, a lookup at most
    std::int32_t retained_slots = 0;         // present: RetainedStates of so many slots is attached
    std::vector<RetainedBy> retained = {};   // of the first segment: by all segments
    std::vector<StageId> priced_exits = {};  // of the first segment: exits of other segments
    StageId first_segment;       // who gets what the exit proposes; read elsewhere than there
    Micros hold_limit{200'000};  // held parts that wait for longer than this run anyway
};

}  // namespace paceline
