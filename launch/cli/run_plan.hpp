// From the options of `paceline run` to the pipeline that will decode: the configuration resolved
// for the model, and its stages placed on GPUs (--gpus, --machine, --dry-run).
//
// One thread; reads files, and starts the driver if GPUs are looked for.
#pragma once

#include <optional>

#include "ipc/base/result.hpp"
#include "launch/base/environment.hpp"
#include "launch/cli/run.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/session/place_on_gpus.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// The configuration as it is written, with --device and --draft-model: all that is known without a
/// model. Reads --config, once: it may be a pipe. Nothing where no stages decode.
/// Errors: those of reading; BadArgument.
[[nodiscard]] Result<std::optional<PipelineConfig>> written_pipeline(const RunOptions& options);

/// `written` for this model. Errors: those of resolving and placing.
[[nodiscard]] Result<ResolvedPipeline> resolve_pipeline(const PipelineConfig& written,
                                                        const RunOptions& options,
                                                        const ModelFile& file,
                                                        const Environment& environment);

/// --dry-run: prints the table on stdout. Needs no GPU with --machine; the model may be a shape.
[[nodiscard]] Status print_plan(const PipelineConfig& written,
                                const RunOptions& options,
                                const Environment& environment);

/// Whether a run on several machines makes sense; without them it does. Errors: those of
/// check_meeting().
[[nodiscard]] Status check_machines(const RunOptions& options, const Environment& environment);

/// What the options of placement may not be combined with. Errors: BadArgument.
[[nodiscard]] Status check_plan_options(const RunOptions& options);

}  // namespace paceline
