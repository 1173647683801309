#include "actors/draft/work/source_jobs.hpp"

#include <memory>
#include <vector>

namespace paceline {

bool SourceJobs::start() {
    for (const RequestPtr& request : host_.requests.longest_waiting_first()) {
        if (request->waits.wanted.empty() || !request->waits.wants_source) continue;
        submit(request);
        return true;
    }
    return false;
}

void SourceJobs::submit(const RequestPtr& request) {
    const DraftNodeId behind = request->waits.wanted.front();
    const std::int32_t tokens = request->waits.wanted_chain;
    request->waits.wanted.clear();
    request->source.lend(behind);
    host_.requests.served(request->id);
    const Position root = request->text->tree.root().position;
    const auto path =
        std::make_shared<const std::vector<TokenId>>(request->text->tree.tokens_to(behind));
    const auto candidates = std::make_shared<std::vector<SourceNode>>();
    host_.context->submit(
        {.name = "draft",
         .request = request->id,
         .id = static_cast<std::uint32_t>(root),
         .rows = static_cast<std::uint32_t>(tokens),
         .context = root + 1 + static_cast<Position>(path->size()) + tokens},
        [request, path, tokens, candidates] {
            *candidates = request->source.grow(*path, tokens);
            return request->source.cancel().cancelled() ? JobOutcome::Cancelled : JobOutcome::Done;
        },
        [this, request, root, behind, tokens, candidates](JobOutcome outcome) {
            request->source.give_back();
            const bool moved = root != request->text->tree.root().position;
            const bool cancelled = outcome == JobOutcome::Cancelled;
            // Cancelled, and not by a verdict: the conductor has cancelled the attempt.
            if (cancelled && !moved && host_.requests.current(request)) host_.stop(request->id);
            if (cancelled) candidates->clear();
            const bool alive = request->text->tree.find(behind) != nullptr;
            request->take_candidates(behind, *candidates, cancelled ? 0 : tokens,
                                     host_.stops.now());
            if (host_.requests.current(request)) {
                if (alive && !request->uses_model()) request->growth.passed(tokens);
                steps_.advance(request);
            }
            host_.job_ended();
        });
}

}  // namespace paceline
