// What `paceline top` prints: rates from two samples of a pipeline, and the table of them.
//
// Pure: samples in, numbers or text out. docs/observability.md has the formula of each number.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/top/top_scan.hpp"

namespace paceline {

/// Of one stage between two samples. Nothing: it cannot be known from them.
struct StageRates {
    std::optional<double> batches_per_second;
    std::optional<double> rows_per_batch;  // nothing without a batch
    std::optional<double> busy;            // share of the time in jobs, 0 to 1
    std::optional<double> waiting;         // share of the time without anything to do, 0 to 1
    std::optional<double> full_per_second;
};

/// Of the pipeline as a whole.
struct PipelineRates {
    std::optional<double> tokens_per_second;  // that the conductor's log took
    std::optional<double> acceptance;         // of the candidates verified; nothing without one
};

/// The counters of a stage that was restarted in between start at 0; a counter that decreased was
/// overwritten with garbage and counts as unchanged. No rates if `before` lacks the stage.
[[nodiscard]] StageRates stage_rates(const PipelineSample& before,
                                     const PipelineSample& after,
                                     StageId stage);
[[nodiscard]] PipelineRates pipeline_rates(const PipelineSample& before,
                                           const PipelineSample& after);

/// "computing 12ms", "computing 12s late", "gone", "stopped".
[[nodiscard]] std::string state_text(const StageSample& stage, std::chrono::nanoseconds now);

inline constexpr std::size_t kTopColumns = 79;  // a terminal of 80 stays in its line

/// The lines of the table, each at most `columns` ASCII characters. Columns beyond kTopColumns are
/// used for the names of stages, which are cut otherwise.
[[nodiscard]] std::vector<std::string> table_lines(const PipelineSample& before,
                                                   const PipelineSample& after,
                                                   std::size_t columns = kTopColumns);

}  // namespace paceline
