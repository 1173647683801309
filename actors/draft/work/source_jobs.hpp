// SourceJobs: the steps of sources that compute: each is a job for one request.
//
// Borrows host and steps. Threads: the actor's loop; the job has the request's source (LentSource).
#pragma once

#include <cstdint>

#include "actors/draft/work/draft_host.hpp"
#include "actors/draft/work/growth_steps.hpp"

namespace paceline {

class SourceJobs {
public:
    using RequestPtr = DraftHost::RequestPtr;

    SourceJobs(DraftHost& host, GrowthSteps& steps) : host_{host}, steps_{steps} {}

    /// Submits the step of the request that waits longest; false: none wants one.
    bool start();

private:
    void submit(const RequestPtr& request);

    DraftHost& host_;
    GrowthSteps& steps_;
};

}  // namespace paceline
