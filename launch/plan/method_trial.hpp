// try_method(): what a method gains on this machine, by decoding: prompts by plain decoding and by
// the method's processes (launch/check), and what a record keeps of it.
//
// Blocks for seconds; starts processes and takes them down again. One thread.
#pragma once

#include "actors/decoding/answer.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/check/run.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/load/load_model.hpp"
#include "launch/plan/method_record.hpp"

namespace paceline {

/// How often a candidate of the draft was right if its parents were, by the verdicts of a run: each
/// batch with candidates ends with one that was wrong, or with the last one. 0: not known, since
/// not all candidates are of a draft's model, or they are not chains.
[[nodiscard]] double draft_acceptance(const PipelineConfig& config, const VerdictTally& verdicts);

/// The median over the prompts of the gain. Errors: those of check_pipeline(); Protocol if an
/// answer differs from plain decoding's; BadArgument if all answers are too short to compare.
[[nodiscard]] Result<MethodRate> try_method(const OpenedModel& model,
                                            const ModelOptions& options,
                                            const ResolvedConfig& pipeline,
                                            const CheckTask& task,
                                            const Environment& environment);

}  // namespace paceline
