// Methods: the pipelines of configs/ that are embedded in the program at build time, by name:
// `paceline run --method NAME`. Constant; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ipc/base/result.hpp"
#include "launch/config/pipeline_config.hpp"

namespace paceline {

struct Method {
    std::string_view name;     // of its file without ".toml"
    std::string_view summary;  // the comment that the file begins with: what it is, when it pays
    std::string_view text;     // the file
};

/// Sorted by name; `autoregressive` is among them.
[[nodiscard]] std::span<const Method> methods();

/// Decoding without stages; as a pipeline, `autoregressive`.
inline constexpr const char* kPlainMethod = "plain";

/// Also kPlainMethod. Errors: BadArgument with the name that was probably meant.
[[nodiscard]] Result<PipelineConfig> method_config(std::string_view name);

/// A configuration's text, for commands that change settings in it.
struct ConfigSource {
    std::string toml;
    std::string file;  // what errors name
};
/// Of a file, or (if `config_file` is empty) of a method. Errors: BadArgument naming the method,
/// BadFile naming the file.
[[nodiscard]] Result<ConfigSource> config_source(const std::string& config_file,
                                                 const std::string& method);

/// "name  summary" for each, and for plain decoding, for --list-methods; what does not fit the line goes
/// on indented.
[[nodiscard]] std::string methods_table();

/// --draft-model: every part of `config` that drafts with a model or with the target's first
/// layers does so with the model in `path`. Errors: BadArgument if nothing drafts with a model.
[[nodiscard]] Status use_draft_model(PipelineConfig& config, const std::string& path);

/// --device for a method: all its stages are on `device`, in one process, as stages that share a
/// GPU must be. Errors: those of check_pipeline().
[[nodiscard]] Status use_device(PipelineConfig& config, const Device& device);
inline constexpr const char* kDeviceIsInTheFile =
    "--device is for --method; with --config the file says where each stage runs "
    "(device = \"cuda:0\")";

/// What the target's segments run on, or the first of them.
[[nodiscard]] Device target_device(const PipelineConfig& config);

}  // namespace paceline
