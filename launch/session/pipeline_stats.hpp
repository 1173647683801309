// PipelineStats: the figures of a pipeline's runs, for the table at the end of a run, for
// --stats and for benches. docs/observability.md, "Figures of a run", defines each of them.
//
// Nothing is counted here. Two sources are read: the figures of the answers (VerdictTally, summed),
// and the telemetry blocks in which processes count (runtime/observe/stage_telemetry.hpp), those of
// dead incarnations included.
// The last segment's block has verdicts too, for `paceline top` while a run goes on, but also
// those that the commit log fenced.
// Plain values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "actors/decoding/answer.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/session/self_draft_stats.hpp"
#include "runtime/observe/counters.hpp"

namespace paceline {

/// One process, or several incarnations of it.
struct ProcessStats {
    std::string name;
    double busy = 0.0;     // share of the time in jobs, 0 to 1
    double waiting = 0.0;  // share of the time without anything to do
};

/// Which of the papers' metrics apply to a pipeline, and their constants.
struct PipelineMetrics {
    bool sends_candidates = false;  // an exit does: FOLD's
    bool proposes = false;          // an exit proposes: AdaDecode's
    int gamma = 0;                  // of lockstep; 0: event-driven, without equations 4 and 10
    int gamma_late = 0;             // gamma2 = gamma - gamma1; 0: PEARL

    /// Rows of a full batch whose root an exit had sent: that root, and gamma2 tokens below it.
    /// The paper's equation 8 leaves the root out.
    [[nodiscard]] int early_rows() const { return gamma_late + 1; }
};
[[nodiscard]] PipelineMetrics metrics_of(const PipelineConfig& config);

struct PipelineStats {
    std::string method;
    double seconds = 0.0;  // that these figures cover
    VerdictTally verdicts{};
    std::array<std::uint64_t, kCounters> counters{};  // summed over all processes
    std::uint64_t target_forwards =
        0;  // verify batches through all layers: those of the last segment
    std::vector<ProcessStats> processes;
    double baseline_rate = 0.0;  // plain decoding's tokens/s on the same prompt; 0: not measured
    /// Of each pair of this pipeline and plain decoding, one right after the other: this pipeline's
    /// tokens/s over plain decoding's. Empty: there is one pair, `rate` and `baseline_rate`.
    std::vector<double> times_plain{};
    double rate = 0.0;  // tokens/s of this run; 0: not measured
    /// Tokens/s of a request without speculation, as the account measures it in between, and how
    /// many times that speed all tokens had so far; 0: not measured.
    double plain_rate = 0.0;
    double speculation_gain = 0.0;
    PipelineMetrics metrics{};
    std::optional<SelfDraftView> self_draft{};  // of a target that drafts for itself
    std::optional<DraftSkipView> draft_skip{};  // of a draft whose skip set changes

    [[nodiscard]] std::uint64_t counter(Counter c) const {
        return counters[static_cast<std::size_t>(c)];
    }
};

/// FOLD's counts, section 4.3 of the paper, over batches that were verified.
struct FoldMetrics {
    std::int64_t total = 0;     // C_total: all of them
    std::int64_t pre = 0;       // those of the root alone: pre-verify that was not avoided
    std::int64_t early = 0;     // C_early: the root was prepared by an exit
    std::int64_t post = 0;      // C_post: the others
    std::int64_t verified = 0;  // N_verified: rows of all of them
    std::optional<double> predicted_total{};  // by equation 10, or 4 without an exit; lockstep
};
[[nodiscard]] FoldMetrics fold_metrics(const PipelineStats& stats);

/// The printed table, several lines.
[[nodiscard]] std::string stats_table(const PipelineStats& stats);
[[nodiscard]] nlohmann::json to_json(const PipelineStats& stats);

}  // namespace paceline
