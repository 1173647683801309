// Pipelines of methods (method_list.hpp), and what options of the command change in one.
// Plain values; any thread.
#pragma once

#include <string>
#include <string_view>

#include "ipc/base/result.hpp"
#include "launch/config/method_list.hpp"
#include "launch/config/pipeline_config.hpp"

namespace paceline {

/// Also kPlainMethod. Errors: BadArgument with the name that was probably meant.
[[nodiscard]] Result<PipelineConfig> method_config(std::string_view name);

/// --draft-model: every part of `config` that drafts with a model or with the target's first
/// layers does so with the model in `path`. Errors: BadArgument if nothing drafts with a model.
[[nodiscard]] Status use_draft_model(PipelineConfig& config, const std::string& path);

/// --device for a method: all its stages are on `device`, in one process, as stages that share a
/// GPU must be. Of several GPUs all have the segments, the first one the drafts too. Errors: those
/// of check_pipeline().
[[nodiscard]] Status use_device(PipelineConfig& config, const Device& device);
inline constexpr const char* kDeviceIsInTheFile =
    "--device is for --method; with --config the file says where each stage runs "
    "(device = \"cuda:0\")";

inline constexpr const char* kGpusOrDevice =
    "--device puts all stages on one GPU; leave it out with --gpus or --machine";

/// The configuration of `source` with what the options --device and --draft-model (may be empty)
/// change in it. Errors: those of parse_pipeline_config() and the two above.
[[nodiscard]] Result<PipelineConfig> written_config(const ConfigSource& source,
                                                    const Device& device,
                                                    const std::string& draft_model);

/// What the target's segments run on, or the first of them.
[[nodiscard]] Device target_device(const PipelineConfig& config);

}  // namespace paceline
