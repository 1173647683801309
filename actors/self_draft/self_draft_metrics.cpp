#include "actors/self_draft/self_draft_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/protocol/counters.hpp"

namespace paceline {
namespace {

std::uint64_t count_of(std::chrono::microseconds took) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0));
}

}  // namespace

void SelfDraftMetrics::pass(const DraftPath& path, std::size_t rows) const {
    host_.context->count(counters::kDraftForwards);
    host_.context->count(counters::kDraftRows, rows);
    const auto each = static_cast<std::uint64_t>(std::lround(2.0 * path.layers));
    host_.context->count(counters::kDraftSublayers, rows * each);
}

void SelfDraftMetrics::pass_took(Micros took) const {
    host_.context->count(counters::kDraftMicros, count_of(took));
}

void SelfDraftMetrics::optimised(std::uint64_t sublayers, Micros took) const {
    host_.context->count(counters::kOptimiseJobs);
    host_.context->count(counters::kOptimiseSublayers, sublayers);
    host_.context->count(counters::kOptimiseMicros, count_of(took));
}

void SelfDraftMetrics::run_took(bool verifies, Micros took) const {
    if (verifies) host_.context->count(counters::kVerifyMicros, count_of(took));
}

void SelfDraftMetrics::verified(const DraftChain& chain, const TreeUpdate& step) const {
    if (!chain.drafted) return;
    // The first one is the old root, which an earlier verdict has committed.
    const auto accepted = std::count_if(
        step.committed.begin() + (step.committed.empty() ? 0 : 1), step.committed.end(),
        [](const TreeNode& node) { return node.origin == msg::Origin::Trunk; });
    host_.context->count(counters::kChainProposed,
                         static_cast<std::uint64_t>(chain.drafted_tokens()));
    host_.context->count(counters::kChainAccepted, static_cast<std::uint64_t>(accepted));
}

void SelfDraftMetrics::show(const SelfDraftState& state) {
    paceline::show(*host_.context, state);
    if (std::exchange(drafts_, state.drafts) == state.drafts) return;
    if (!state.drafts) host_.context->count(counters::kAutoOffs);
    if (on_auto_off_) on_auto_off_(state.drafts, state.gain);
}

}  // namespace paceline
