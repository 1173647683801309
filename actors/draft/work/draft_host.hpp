// DraftHost: what a speculative stage and the parts of its work share.
//
// Owned by DraftWork; the parts borrow it. Threads: the actor's loop; a job touches the model, or
// one source.
#pragma once

#include <functional>

#include "actors/decoding/adaptive_stops.hpp"
#include "actors/draft/draft_account.hpp"
#include "actors/draft/draft_plan.hpp"
#include "actors/draft/work/draft_requests.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

struct DraftHost {
    using RequestPtr = DraftRequests::RequestPtr;

    DraftPlan plan;
    DraftTools tools;
    AdaptiveStops stops;
    /// Ends a request whose attempt the conductor has cancelled.
    std::function<void(RequestId id)> stop;
    /// Continues a request that has waited for candidates.
    std::function<void(const RequestPtr& request)> continue_request;
    /// The next job may start.
    std::function<void()> job_ended;
    DraftAccount account = {};
    DraftRequests requests = {};
    StageContext* context = nullptr;  // from DraftWork::on_start() on

    [[nodiscard]] DraftModel* model() const { return tools.model.get(); }
};

constexpr RunOutcome run_outcome(JobOutcome outcome) {
    return outcome == JobOutcome::Done ? RunOutcome::Done : RunOutcome::Cancelled;
}
constexpr JobOutcome job_outcome(RunOutcome outcome) {
    return outcome == RunOutcome::Done ? JobOutcome::Done : JobOutcome::Cancelled;
}

}  // namespace paceline
