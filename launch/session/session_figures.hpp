// SessionFigures: what a session's processes and answers have counted since the last reset().
//
// Telemetry blocks count from the start of their incarnation, so reset() keeps what they had
// counted by then; an incarnation that was started later counts from zero. Verdicts come from the
// answers that have ended.
// Borrows configuration, model and placement. Threads: the loop's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "actors/decoding/answer.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/placement/placement.hpp"
#include "launch/session/pipeline_stats.hpp"
#include "model/config.hpp"
#include "runtime/observe/counters.hpp"
#include "runtime/parent/supervisor.hpp"

namespace paceline {

class SessionFigures {
public:
    SessionFigures(const PipelineConfig& config,
                   const ModelConfig& model,
                   const Placement& placement)
        : config_{config}, model_{model}, placement_{placement} {}

    /// `records`, here and below: Supervisor::records().
    void reset(std::span<const StageRecord> records);
    /// An answer has ended.
    void add(const VerdictTally& verdicts) { tally_.add(verdicts); }

    /// `seconds`: that the figures cover.
    [[nodiscard]] PipelineStats stats(std::span<const StageRecord> records, double seconds) const;
    /// Rows of prompts that the target has processed. Every segment counts each row; one that was
    /// replaced counts again.
    [[nodiscard]] std::int32_t prefilled_rows(std::span<const StageRecord> records) const;

private:
    using Counts = std::array<std::uint64_t, kCounters>;
    [[nodiscard]] Counts growth_of(const StageRecord& record) const;
    void add_gauges(const StageRecord& record, PipelineStats& stats) const;
    void add_process(const StageRecord& record, const Counts& grown, PipelineStats& stats) const;

    const PipelineConfig& config_;
    const ModelConfig& model_;
    const Placement& placement_;
    VerdictTally tally_;
    std::map<std::pair<StageId, Epoch>, Counts> before_;  // at the last reset()
};

}  // namespace paceline
