// SetSearcher: searches the set of sub-layers that a draft skips while it serves requests, by
// SWIFT's search (self_draft/search_trials.hpp).
//
//     passed()     a pass of the model has taken so long
//     verified()   a verdict on the model's candidates
//     next()       a trial on the last tokens of a text, if one is due
//     use_best()   the model skips the best set from now on
//
//     [Waiting] -- a trial is due --> [Running] (job)
//         ^                              |
//         +------------------------------+
//
// A trial is due after `interval` verdicts, if an answer is longer than the window and its keys
// before the window are read, and jobs have taken less than `optimise_share` of the time of passes.
//
// The job reads the text's keys, so the text must run through all layers
// (DraftModelOptions::whole_text); it writes to scratch slots of the model. It holds a copy of the
// tokens: verdicts may come meanwhile, and the request may end.
// Borrows the model. Threads: the actor's loop; run() is the job.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "actors/draft/draft_model.hpp"
#include "actors/draft/draft_request.hpp"
#include "actors/draft/draft_scratch.hpp"
#include "actors/self_draft/optimise_budget.hpp"
#include "actors/self_draft/search_trials.hpp"
#include "runtime/observe/trace.hpp"

namespace paceline {

class SetSearcher {
public:
    using Micros = std::chrono::microseconds;

    /// No text of the model is open, and no pass of it is prepared; its backend has
    /// options.scratch_slots() slots for scratch.
    SetSearcher(DraftModel& model, const SearchTrialOptions& options);

    void passed(Micros took);
    void verified(int accepted, int drafted);

    /// What the next job is to be submitted as, if one is due on this request's text; it is
    /// prepared then.
    [[nodiscard]] std::optional<JobLabel> next(const DraftRequest& request);
    RunOutcome run(const CancelToken& cancel);
    void finish(RunOutcome outcome, Micros took);

    /// Whether this changes the set that the model skips. Not while a pass or a job runs.
    bool use_best();

    [[nodiscard]] const SkipSearch& search() const { return trials_.search(); }
    /// Trials that were judged, since this draft began.
    [[nodiscard]] std::uint64_t made() const { return made_; }
    /// As SearchTrials.
    [[nodiscard]] std::uint64_t take_sublayers() { return trials_.take_sublayers(); }

private:
    [[nodiscard]] bool tries(const DraftRequest& request) const;

    DraftModel& model_;
    DraftScratch scratch_;
    SearchTrials trials_;
    OptimiseBudget budget_;
    Micros decoding_{0};  // time of passes
    int verdicts_ = 0;    // since the last job
    std::uint64_t made_ = 0;

    // The job that was prepared.
    std::shared_ptr<DraftText> text_;  // keeps its slots
    std::vector<TokenId> tokens_;
    std::vector<KvSlot> slots_;
};

}  // namespace paceline
