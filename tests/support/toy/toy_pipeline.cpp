#include "tests/support/toy/toy_pipeline.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "actors/draft/draft_actor.hpp"
#include "actors/draft/prompt_lookup_source.hpp"
#include "actors/segment/segment_actor.hpp"
#include "ipc/base/check.hpp"
#include "runtime/loop/control_port.hpp"
#include "tests/support/toy/toy_grammar.hpp"
#include "tests/support/toy/toy_guesses.hpp"
#include "tests/support/toy/toy_oracle.hpp"

namespace paceline::testing {
namespace {

constexpr std::uint32_t kTensorSlots = 4;
constexpr std::size_t kBatchBytes = kBatchRowsMax * kFakeDim * sizeof(float);
constexpr Position kContext = 160;  // of every toy request

StageId verifier_of(const ToyPlan& plan) {
    return toy_segment(plan.segments);
}

/// After which segment there is an exit; 0: after none.
int exit_of(const ToyPlan& plan) {
    return plan.exits && plan.segments > 1 ? 1 : 0;
}

SegmentPlan segment_plan(const ToyPlan& plan, int index) {
    SegmentPlan segment;
    segment.count = plan.segments;
    if (index > 1) segment.previous = toy_segment(index - 1);
    if (index < plan.segments) segment.next = toy_segment(index + 1);
    segment.draft = toy_draft(plan);
    if (segment.draft) segment.speculative = {*segment.draft};
    segment.first_segment = toy_segment(1);
    segment.verifier = verifier_of(plan);
    segment.verdict_to.push_back(kConductor);
    for (int i = 1; i < plan.segments; ++i) segment.verdict_to.push_back(toy_segment(i));
    if (segment.draft) segment.verdict_to.push_back(*segment.draft);
    segment.dispatch.proposal_wait = Micros{plan.proposal_wait_micros};
    if (!segment.next) segment.verify.grammars = toy_grammars();
    if (!plan.exits) return segment;
    segment.dispatch.shape = BatchShape::Tree;
    segment.dispatch.batches_in_flight_max = 4;
    if (index != exit_of(plan)) return segment;
    segment.exit =
        ExitOptions{.sends_candidates = true, .proposes = true, .gate = 0.5F, .defers = true};
    if (segment.draft) segment.exit->candidates_to = {*segment.draft};
    return segment;
}

DraftSourceFactory draft_sources(const ToyPlan& plan) {
    return [plan](const Request& request) -> std::unique_ptr<DraftSource> {
        if (plan.draft == ToyDraft::Oracle) {
            std::vector<TokenId> text = request.text;
            const std::vector<TokenId> answer = toy_answer(request);
            text.insert(text.end(), answer.begin(), answer.end());
            return std::make_unique<OracleSource>(std::move(text), plan.right, DraftCost::Compute,
                                                  plan.seed + request.sampling.seed);
        }
        if (plan.draft == ToyDraft::Guesses)
            return guessing_source(plan.seed + request.text.size());
        return std::make_unique<PromptLookupSource>(PromptLookup::make({}).value());
    };
}

}  // namespace

StageId toy_segment(int index) {
    return StageId{static_cast<std::uint16_t>(index)};
}

std::optional<StageId> toy_draft(const ToyPlan& plan) {
    if (plan.draft == ToyDraft::None) return std::nullopt;
    return toy_segment(plan.segments + 1);
}

std::string toy_name(const ToyPlan& plan, StageId id) {
    return id == toy_draft(plan) ? "draft" : "segment-" + std::to_string(id.value);
}

std::vector<StageId> toy_actors(const ToyPlan& plan) {
    std::vector<StageId> actors;
    for (int i = 1; i <= plan.segments; ++i) actors.push_back(toy_segment(i));
    if (const auto draft = toy_draft(plan)) actors.push_back(*draft);
    return actors;
}

std::vector<std::vector<StageId>> toy_homes(const ToyPlan& plan) {
    std::vector<std::vector<StageId>> homes;
    const std::optional<StageId> draft = toy_draft(plan);
    for (const StageId id : toy_actors(plan)) {
        const bool is_draft = id == draft;
        bool joins = plan.housing == ToyHousing::Together && !homes.empty();
        if (plan.housing == ToyHousing::Pairs) joins = !is_draft && id.value % 2 == 0;
        if (plan.housing == ToyHousing::DraftWithFirst && is_draft) {
            homes.front().push_back(id);
        } else if (joins) {
            homes.back().push_back(id);
        } else {
            homes.push_back({id});
        }
    }
    return homes;
}

std::vector<EdgeSpec> toy_edges(const ToyPlan& plan) {
    std::vector<EdgeSpec> edges;
    const StageId verifier = verifier_of(plan);
    for (int i = 1; i < plan.segments; ++i) {
        edges.push_back({.from = toy_segment(i),
                         .to = toy_segment(i + 1),
                         .tensor_slots = kTensorSlots,
                         .tensor_bytes = kBatchBytes});
        edges.push_back({.from = verifier, .to = toy_segment(i)});
    }
    edges.push_back({.from = verifier, .to = kConductor});
    if (const auto draft = toy_draft(plan)) {
        edges.push_back({.from = *draft, .to = toy_segment(1)});
        edges.push_back({.from = verifier, .to = *draft});
        if (exit_of(plan) != 0) edges.push_back({.from = toy_segment(1), .to = *draft});
    }
    for (const StageId id : toy_actors(plan)) edges.push_back({.from = kConductor, .to = id});
    return edges;
}

ConductorPlan toy_conductor_plan(const ToyPlan& plan) {
    ConductorPlan conductor;
    conductor.verifier = verifier_of(plan);
    const std::vector<StageId> actors = toy_actors(plan);
    const std::vector<std::vector<StageId>> homes = toy_homes(plan);
    // The first segment sets everything going, so it learns of a request last.
    for (auto id = actors.rbegin(); id != actors.rend(); ++id) {
        const auto home = std::find_if(homes.begin(), homes.end(), [id](const auto& each) {
            return std::count(each.begin(), each.end(), *id) != 0;
        });
        conductor.begin_to.push_back({.id = *id,
                                      .essential = *id != toy_draft(plan),
                                      .apart = home->size() == 1,
                                      .name = toy_name(plan, *id),
                                      .home = home->front(),
                                      .proposes_alone = *id == toy_draft(plan) && !plan.exits});
    }
    return conductor;
}

ToyActor make_toy_actor(const ToyPlan& plan, StageId id) {
    if (id == toy_draft(plan)) {
        PACE_CHECK(plan.draft != ToyDraft::Eagle, "its edge has no tensors here");
        DraftPlan draft{.first_segment = toy_segment(1),
                        .verifier = verifier_of(plan),
                        .vocab_size = kFakeVocab};
        if (exit_of(plan) != 0) draft.exit = toy_segment(1);
        return {nullptr,
                std::make_unique<DraftActor>(draft, DraftTools{.source = draft_sources(plan)})};
    }
    const int index = id.value;
    auto backend =
        std::make_unique<FakeBackend>(kFakeLayers * (index - 1) / plan.segments,
                                      kFakeLayers * index / plan.segments, plan.kv_slots);
    backend->layer_cost = Micros{plan.layer_micros};
    if (plan.row_micros > 0) {
        backend->on_rows = [cost = Micros{plan.row_micros}](std::span<const Row> rows) {
            std::this_thread::sleep_for(cost * rows.size());
        };
    }
    auto actor = std::make_unique<SegmentActor>(segment_plan(plan, index), *backend);
    return {std::move(backend), std::move(actor)};
}

Request toy_request(std::uint64_t seed, std::int32_t max_tokens) {
    std::mt19937_64 random{seed};
    Request request;
    const std::size_t length = 1 + random() % 40;
    for (std::size_t i = 0; i < length; ++i) {
        request.text.push_back(static_cast<TokenId>(random() % kFakeVocab));
    }
    request.max_tokens = max_tokens;
    request.context = kContext;
    return request;
}

void make_toy_sampled(Request& request, std::uint64_t seed) {
    request.sampling.temperature = 0.8F;
    request.sampling.top_p = 0.95F;
    request.sampling.top_k = 20;
    request.sampling.seed = seed;
    request.sampling.repetition_penalty = 1.1F;
    request.sampling.frequency_penalty = 0.1F;
    request.sampling.penalty_window = 16;
    if (seed % 2 == 0) request.sampling.penalty_begin = static_cast<Position>(request.text.size());
}

std::vector<TokenId> toy_answer(const Request& request) {
    return plain_answer(request).answer;
}

}  // namespace paceline::testing
