// DraftPlan and DraftTools: the peers of a speculative stage, and its model or source.
//
// By default one DraftActor grows the whole tree. With a CorrectActor in a process of its own,
// Draft grows the trunk and sends it to Correct; Correct grows the candidates that an exit sends
// beside it, and sends them to the first segment and to Draft.
// Plain values.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "actors/decoding/growth_rule.hpp"
#include "actors/draft/draft_model.hpp"
#include "actors/draft/draft_source.hpp"
#include "actors/draft/grammar_source.hpp"
#include "actors/draft/phrases.hpp"
#include "actors/self_draft/layer_skip_dp.hpp"
#include "actors/self_draft/search_trials.hpp"
#include "ipc/base/ids.hpp"

namespace paceline {

struct DraftPlan {
    StageId first_segment;             // who gets the proposals
    StageId verifier;                  // the last segment: whose verdicts count
    int vocab_size = 0;                // the target's
    std::optional<StageId> exit = {};  // the segment whose exit sends candidates
    GrowthRule growth = {};
    bool shares_cores = false;  // the target computes on the cores of this stage
};

/// A model, a source of chains or trees, or both (then the source's candidates come first where it
/// has any, and the model goes on below them).
struct DraftTools {
    std::unique_ptr<DraftModel> model = nullptr;
    DraftSourceFactory source = {};
    std::shared_ptr<GrammarLoader> grammars = {};  // nullptr: nothing is known of grammars
    GrammarUse grammar_use = GrammarUse::MaskedForced;
    // Ouroboros, around the model, with a source that observes nothing. The pool of all requests,
    // or nullptr: each has its own.
    std::optional<PhraseOptions> phrases = {};
    std::shared_ptr<NgramPool> phrase_pool = {};
    // The model's skip set changes: chosen anew from residuals, or searched. At most one of them.
    std::optional<LayerSkipDpOptions> programme = {};
    std::optional<SearchTrialOptions> search = {};
    /// Called on the actor's loop when the search has changed the set.
    std::function<void(const SkipSearch&)> on_set = {};
};

}  // namespace paceline
