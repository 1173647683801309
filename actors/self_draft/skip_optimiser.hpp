// SkipOptimiser: finds a better set of sub-layers to skip between two drafts: trials of SWIFT's
// search, or CLaSp's dynamic programme. Used by SelfDraft.
//
//     loop   next()     a job, if one is due and its time is allowed
//     job    run()      Search: the trial's set and the best one predict the last `window` tokens
//                       (self_draft/search_trials.hpp)
//                       Programme: one call of the model per layer (self_draft/skip_programme.hpp)
//     loop   finish()   what follows for the set
//
// Rows of a job write to scratch slots and see the committed keys before them, and, in a trial, the
// rows of their own set. So nothing of a text changes. A job runs only while the time that jobs
// have taken is below `optimise_share` of the time of drafts and verification.
// Owns the search's state and scratch memory. Threads: the actor's loop; run() is the job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "actors/decoding/slot_allocator.hpp"
#include "actors/protocol/request_state.hpp"
#include "actors/self_draft/optimise_budget.hpp"
#include "actors/self_draft/search_trials.hpp"
#include "actors/self_draft/self_draft_options.hpp"
#include "actors/self_draft/skip_programme.hpp"
#include "model/backend.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

class SkipOptimiser {
public:
    /// Borrows options and backend, which has the final head. `scratch` has
    /// options.scratch_slots().
    SkipOptimiser(const SelfDraftOptions& options, Backend& backend, RequestSlots scratch);

    [[nodiscard]] const SkipSet& set() const { return set_; }
    /// Whether the verify rows of the round that begins now are to keep their residuals.
    [[nodiscard]] bool wants_residuals() const;
    /// Those of the last accepted row of `state`, which stands at `position`: [sublayers, dim], the
    /// residual after each sub-layer.
    void take_residuals(const RequestState& state,
                        Position position,
                        std::span<const float> residuals);

    /// A round of a request has ended, drafted or not.
    void round_ended() { budget_.round_ended(); }
    /// A verdict accepted so many of the drafted tokens. Whether the set has changed, to a smaller
    /// one.
    bool verified(int accepted, int drafted);
    /// What the next job is to be submitted as, if one is due: on the text of `state`, whose new
    /// root was not drafted after yet. `decoding`: the time of drafts and verification so far.
    /// `affords`: whether a job may run that takes about so long; asked if nothing else is against
    /// it.
    [[nodiscard]] std::optional<JobLabel> next(const std::shared_ptr<RequestState>& state,
                                               Micros decoding,
                                               const std::function<bool(Micros)>& affords);
    RunOutcome run();
    /// Whether the set has changed.
    bool finish(RunOutcome outcome, Micros took);

    /// nullptr for another choice than Search.
    [[nodiscard]] const SkipSearch* search() const {
        return trials_ ? &trials_->search() : nullptr;
    }
    /// Sub-layers that rows of jobs have run since the last call. Not while a job runs.
    [[nodiscard]] std::uint64_t take_sublayers();

private:
    [[nodiscard]] bool due(const RequestState& state) const;
    [[nodiscard]] bool tries(const RequestState& state) const;
    [[nodiscard]] JobLabel next_trial(const RequestState& state);
    bool use(SkipSet set);

    const SelfDraftOptions& options_;
    Backend& backend_;
    RequestSlots scratch_;
    std::vector<KvSlot> slots_;  // of scratch_
    SkipSet set_;
    std::optional<SearchTrials> trials_;      // with the choice Search
    std::optional<SkipProgramme> programme_;  // with the choice Programme
    OptimiseBudget budget_;
    int verdicts_ = 0;                     // since the last job
    std::shared_ptr<RequestState> state_;  // of the job that was prepared
};

}  // namespace paceline
