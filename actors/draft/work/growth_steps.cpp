#include "actors/draft/work/growth_steps.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace paceline {
namespace {

// Lockstep: how long an exit's candidates are waited for. Long beside any batch, short beside a
// hang.
constexpr Micros kCandidatesWait{200'000};

}  // namespace

void GrowthSteps::advance(const RequestPtr& request) {
    if (request->waits.in_pass || request->source.lent()) return;
    request->waits.wanted.clear();
    request->end_tentative(false);
    if (request->waits.for_begin) return;
    DraftTree& tree = request->text->tree;
    while (host_.requests.current(request)) {
        if (request->source && request->uses_model() && request->source.take_due()) {
            const std::int32_t tokens = std::min(request->growth.gamma(), request->room());
            if (tokens > 0 && !ask_source(*request, tree.root().id, tokens)) return;
        }
        const Growth::Step step = request->next(host_.stops.now());
        if (step.say) {
            if (*step.say == msg::ProposalState::Complete) request->add_phrases();
            // To a target that waits for nothing, nothing is said.
            const bool silent = host_.account.off() && tree.nodes().size() == 1;
            if (!silent) outlet_.send(*request, *step.say);
            continue;
        }
        if (request->unsent.changed && (request->growth.streams() || request->draws())) {
            outlet_.send(*request, msg::ProposalState::Growing);
        }
        if (step.waits_for_candidates) return wait_for_candidates(request);
        if (step.expand.empty()) return;
        if (request->uses_model()) {
            request->waits.wanted = step.expand;
            request->waits.wants_source = false;
            request->add_tentative(step.chain);
            return;
        }
        if (!request->source) {
            // The model does not know this text (yet).
            for (const DraftNodeId node : step.expand) tree.close(node);
        } else if (!ask_source(*request, step.expand.front(), step.chain)) {
            return;
        }
    }
}

/// False: the answer comes by a job.
bool GrowthSteps::ask_source(DraftRequest& request, DraftNodeId behind, std::int32_t tokens) {
    if (request.source->cost() == DraftCost::Instant) {
        const std::vector<SourceNode> candidates =
            request.source.grow(request.text->tree.tokens_to(behind), tokens);
        request.take_candidates(behind, candidates, tokens, host_.stops.now());
        if (!request.uses_model()) request.growth.passed(std::max<std::int32_t>(1, tokens));
        return true;
    }
    // A draft that sends its tree while it grows takes one step at a time.
    const bool at_once = host_.plan.growth.pace == DraftPace::Sequential || request.uses_model();
    request.waits.wanted = {behind};
    request.waits.wants_source = true;
    request.waits.wanted_chain = at_once ? tokens : 1;
    return false;
}

void GrowthSteps::wait_for_candidates(const RequestPtr& request) {
    const std::uint32_t wait = ++request->waits.candidates;
    host_.context->schedule(kCandidatesWait, [this, wait, weak = std::weak_ptr{request}] {
        const RequestPtr waiting = weak.lock();
        if (!waiting || !host_.requests.current(waiting) || waiting->waits.candidates != wait)
            return;
        waiting->growth.waited_out();
        host_.continue_request(waiting);
    });
}

}  // namespace paceline
