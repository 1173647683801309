// ModelPasses: the passes of a speculative stage's model, each for all requests that want one, the
// longest waiting first.
//
//     start() -> DraftModel::prepare() -> run() (job) -> take() -> the requests' trees grow
//
// Correct's requests also get rows that read the text, so that the trunk's keys and values can be
// appended to the model's cache. Candidates of a running pass below nodes that were dropped
// meanwhile are dropped too. A pass for one request is cancelled with it.
// Borrows host, outlet, steps and the skip set's jobs, which learn the time of passes.
// Threads: the actor's loop; a job is DraftModel::run().
#pragma once

#include <memory>
#include <vector>

#include "actors/draft/work/draft_host.hpp"
#include "actors/draft/work/growth_steps.hpp"
#include "actors/draft/work/proposal_outlet.hpp"
#include "actors/draft/work/skip_set_jobs.hpp"

namespace paceline {

class ModelPasses {
public:
    using RequestPtr = DraftHost::RequestPtr;

    ModelPasses(DraftHost& host, ProposalOutlet& outlet, GrowthSteps& steps, SkipSetJobs& skip_sets)
        : host_{host}, outlet_{outlet}, steps_{steps}, skip_sets_{skip_sets} {}

    /// Submits the next pass while no job runs; false: no request wants one.
    bool start();
    /// A request is over.
    void cancel(const RequestPtr& request);

private:
    struct Pass {
        std::vector<RequestPtr> requests;
        CancelToken cancel;
        Micros begun{0};
        bool given_up = false;  // cancelled by this actor; otherwise with its attempt
        bool drafts = true;     // it does not read a prompt, or what was missed while off
    };
    [[nodiscard]] bool lags(const DraftRequest& request) const;
    [[nodiscard]] std::shared_ptr<Pass> prepare();
    void end(Pass& pass, RunOutcome outcome);
    void take(const RequestPtr& request, const DraftPassResult& taken);

    DraftHost& host_;
    ProposalOutlet& outlet_;
    GrowthSteps& steps_;
    SkipSetJobs& skip_sets_;
    std::shared_ptr<Pass> running_;
};

}  // namespace paceline
