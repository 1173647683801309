// SelfDraftStats: the figures that the papers report of a target that drafts for itself (LayerSkip,
// Draft & Verify, SWIFT, CLaSp): tokens per target forward, acceptance per draft step, layer-rows,
// shares of time, the expected speed-up, and the skip set. Of a draft in a process of its own that
// changes its skip set: that set.
// Part of PipelineStats.
//
// docs/observability.md, "Metrics of drafts that the target makes itself", defines each of them.
// Plain values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "actors/decoding/answer.hpp"
#include "actors/self_draft/self_draft_state.hpp"
#include "model/config.hpp"
#include "runtime/observe/counters.hpp"

namespace paceline {

/// Data that are not in the counters.
struct SelfDraftView {
    int layers = 0;             // of the target
    double head_share = 0.0;    // of the multiply-adds of one token
    double drafted_head = 1.0;  // the share of the head that a drafted row computes
    bool auto_off = false;      // as configured
    std::array<std::uint64_t, kGauges> gauges{};  // of the first segment's process
};
/// `short_list`: of [self_draft]. The shorter list of a trained head is not considered.
[[nodiscard]] SelfDraftView self_draft_view(const ModelConfig& model,
                                            bool auto_off,
                                            int short_list);

/// Of rows, in layers, over the tokens that were emitted.
struct LayerRows {
    double draft = 0.0;
    double verify = 0.0;
    double optimise = 0.0;
    [[nodiscard]] double all() const { return draft + verify + optimise; }
};

/// Of the time inside runs, 0 to 1.
struct TimeShares {
    double draft = 0.0;
    double verify = 0.0;
    double optimise = 0.0;
};

struct SelfDraftStats {
    std::uint64_t passes = 0;
    std::uint64_t steps = 0;           // rows of passes
    double tokens_per_forward = 0.0;   // M; the target's own token is one of them
    double acceptance_per_step = 0.0;  // alpha
    double chain_acceptance = 0.0;     // of first choices alone
    double drafted_rounds = 0.0;       // share of the verify batches that had a candidate
    LayerRows layer_rows{};            // per token
    double prefill_layer_rows = 0.0;   // in all
    TimeShares time{};
    std::uint64_t optimise_jobs = 0;
    std::uint64_t auto_offs = 0;
    double step_cost = 0.0;            // c: layers of a drafted row over all layers
    double step_cost_with_head = 0.0;  // the same with the head, which every drafted row needs
    double expected = 0.0;             // speed-up, from M, alpha and c
    double expected_with_head = 0.0;
    int layers = 0;
    bool auto_off = false;
    std::optional<SelfDraftState> state{};  // at the end
};
[[nodiscard]] SelfDraftStats self_draft_stats(const SelfDraftView& view,
                                              const VerdictTally& verdicts,
                                              const std::array<std::uint64_t, kCounters>& counters,
                                              double seconds);

/// A draft in a process of its own whose skip set changes while it serves.
struct DraftSkipView {
    int layers = 0;                               // of the target
    std::array<std::uint64_t, kGauges> gauges{};  // of the draft's process
};
/// What the draft leaves out at the end, and the jobs that chose it; nothing before the draft has
/// begun.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> draft_skip_lines(
    const DraftSkipView& view, const std::array<std::uint64_t, kCounters>& counters);
[[nodiscard]] nlohmann::json draft_skip_json(const DraftSkipView& view,
                                             const std::array<std::uint64_t, kCounters>& counters);

/// Lines of a table, named. `times_plain`: the measured speed-up; 0: not measured.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> self_draft_lines(
    const SelfDraftStats& stats, double times_plain);
[[nodiscard]] nlohmann::json to_json(const SelfDraftStats& stats);

}  // namespace paceline
