// What concerns more than one stage or table of a pipeline's file: what is missing, used twice, or
// cannot work together. Pure.
#pragma once

#include "ipc/base/result.hpp"
#include "launch/config/pipeline_config.hpp"

namespace paceline {

/// Fills in what follows from other settings (an exit of an "early-verify" without [exit], whether
/// an exit sends, the exit of the last of many segments, which has none). Before check_pipeline().
void complete_pipeline(PipelineConfig& config);

/// Errors: BadArgument with file, stage or table, and what to change.
[[nodiscard]] Status check_pipeline(const PipelineConfig& config);

}  // namespace paceline
