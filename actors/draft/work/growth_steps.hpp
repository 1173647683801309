// GrowthSteps: how the tree of a request grows between jobs: takes the steps that need no job,
// sends what they say, and notes what the request wants from the next one (RequestWaits).
//
// Borrows host and outlet. Threads: the actor's loop.
#pragma once

#include <cstdint>

#include "actors/draft/work/draft_host.hpp"
#include "actors/draft/work/proposal_outlet.hpp"

namespace paceline {

class GrowthSteps {
public:
    using RequestPtr = DraftHost::RequestPtr;

    GrowthSteps(DraftHost& host, ProposalOutlet& outlet) : host_{host}, outlet_{outlet} {}

    /// After each change of the tree. Nothing while a job has the request: its end calls this.
    void advance(const RequestPtr& request);

private:
    bool ask_source(DraftRequest& request, DraftNodeId behind, std::int32_t tokens);
    void wait_for_candidates(const RequestPtr& request);

    DraftHost& host_;
    ProposalOutlet& outlet_;
};

}  // namespace paceline
