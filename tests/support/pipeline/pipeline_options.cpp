#include "tests/support/pipeline/pipeline_options.hpp"

#include <algorithm>
#include <utility>

#include "tests/support/toy/toy_ahead_tree.hpp"
#include "tests/support/toy/toy_grammar.hpp"

namespace paceline::testing {

void add_exit(PipelineOptions& options, Exit kind, std::mt19937_64& random) {
    ExitOptions exit;
    exit.sends_candidates =
        kind == Exit::Candidates || kind == Exit::Everything || kind == Exit::Lockstep;
    exit.proposes = kind == Exit::Proposes || kind == Exit::Defers || kind == Exit::Everything;
    exit.defers = kind == Exit::Defers || kind == Exit::Everything;
    exit.lockstep = kind == Exit::Lockstep;
    if (options.drafting != Drafting::None) exit.candidates_to = {kTheDraft};
    exit.gate = 0.25F * static_cast<float>(random() % 5);
    exit.top = 1 + static_cast<std::uint32_t>(random() % kExitTopMax);
    exit.early_max = 1 + static_cast<std::uint32_t>(random() % 8);
    exit.ahead_top = 1 + static_cast<std::uint32_t>(random() % 3);
    const auto heads = static_cast<std::uint8_t>(1 + random() % 3);
    const auto inner = static_cast<std::uint64_t>(std::max(1, options.segments - 1));
    const int place = 1 + static_cast<int>(random() % inner);
    options.exit_at = options.segments > 1 ? place : 0;
    if (kind == Exit::Lockstep && options.exit_at != 0) options.exit_at = 1;
    if (kind == Exit::None) options.exit_at = 0;
    if (kind == Exit::Ahead) {
        options.exit_at = options.segments;
        for (std::uint8_t head = 1; head <= heads; ++head) exit.ahead.push_back(HeadId{head});
        // By a number that such an exit has no other use for.
        if (exit.top % 2 == 0)
            exit.ahead_tree = toy_ahead_tree(heads, static_cast<std::uint8_t>(exit.ahead_top));
    }
    options.exit = std::move(exit);
}

SegmentPlan segment_plan(const PipelineOptions& options, int index) {
    const int count = options.segments;
    SegmentPlan plan;
    plan.count = count;
    if (index > 1) plan.previous = segment_id(index - 1);
    if (index < count) plan.next = segment_id(index + 1);
    const bool drafts = options.drafting != Drafting::None;
    if (drafts) plan.draft = kTheDraft;
    if (drafts) plan.speculative = {kTheDraft};
    if (options.drafting == Drafting::Programme) plan.tap = TapOptions{kTheDraft, 2};
    if (options.drafting == Drafting::Eagle && index == count)
        plan.features = FeatureOptions{kTheDraft, options.feature_layers};
    plan.first_segment = kFirstSegment;
    plan.hold_limit = options.hold_limit;
    if (index == options.exit_at) plan.exit = options.exit;
    if (index == 1) plan.self_draft = options.self_draft;
    plan.verifier = segment_id(count);
    plan.verdict_to = {kTheConductor};
    if (drafts) plan.verdict_to.push_back(kTheDraft);
    for (int i = 1; i < count; ++i) plan.verdict_to.push_back(segment_id(i));
    plan.dispatch = options.dispatch;
    plan.verify = options.verify;
    if (index == count) plan.verify.grammars = toy_grammars();
    if (options.retained_slots == 0) return plan;
    if (index < count) plan.retained_slots = options.retained_slots;
    for (int i = 1; i < count; ++i) {
        plan.retained.push_back({.stage = segment_id(i),
                                 .end = 2 * static_cast<std::uint32_t>(kFakeLayers * i / count),
                                 .slots = options.retained_slots});
    }
    return plan;
}

std::unique_ptr<FakeBackend> segment_backend(const PipelineOptions& options, int index) {
    const int count = options.segments;
    std::int32_t scratch = 0;
    if (options.self_draft && options.self_draft->choice != SkipChoice::Fixed)
        scratch = pages_for(options.self_draft->scratch_slots()) * kKvPageSlots;
    auto backend = std::make_unique<FakeBackend>(
        kFakeLayers * (index - 1) / count, kFakeLayers * index / count, options.kv_slots + scratch);
    backend->all_nan_at = options.all_nan_at;
    backend->candidate_right = options.candidate_right;
    backend->draws_itself = options.draws_itself;
    if (index == 1 && options.self_draft && options.self_draft->adapter)
        backend->adapter_after = options.self_draft->exit;
    backend->on_device = ((options.on_devices >> static_cast<unsigned>(index)) & 1U) != 0;
    return backend;
}

}  // namespace paceline::testing
