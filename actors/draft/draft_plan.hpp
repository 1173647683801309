// DraftPlan and DraftTools: what a DraftActor is told to be, as Draft or as Correct.
//
// Draft and Correct are one state machine with different parts of the tree to grow
// (GrowthRule::part): by default one actor does both with one model. As processes of their own,
// Draft grows the trunk and tells Correct of it; Correct grows what the exit names beside it, and
// tells Draft.
// Plain values.
#pragma once

#include <memory>
#include <optional>

#include "actors/decoding/growth_rule.hpp"
#include "actors/draft/draft_model.hpp"
#include "actors/draft/draft_source.hpp"
#include "ipc/base/ids.hpp"

namespace paceline {

struct DraftPlan {
    StageId first_segment;                   // who gets the proposals
    StageId judge;                           // the last segment: whose verdicts count
    int vocab_size = 0;                      // the target's
    std::optional<StageId> exit = {};        // the segment whose exit names alternatives
    std::optional<StageId> correct = {};     // Draft: who is told the trunk (and its KV rows)
    std::optional<StageId> trunk_from = {};  // Correct: who tells it
    // Draft and Correct: Correct's proposals go to Draft as well, which goes on below the branch
    // that the target took. Without it Draft begins anew behind a text it had not expected.
    std::optional<StageId> branches_to = {};    // Correct: Draft
    std::optional<StageId> branches_from = {};  // Draft: Correct
    GrowthRule growth = {};
};

/// What it thinks with: a model, a source of chains, or both (then the source's guess comes first
/// where it has one, and the model goes on below it).
struct DraftTools {
    std::unique_ptr<DraftModel> model = nullptr;
    DraftSourceFactory source = {};
};

}  // namespace paceline
