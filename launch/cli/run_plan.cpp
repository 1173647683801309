#include "launch/cli/run_plan.hpp"

#include <fmt/core.h>

#include "launch/base/text_output.hpp"
#include "launch/config/methods.hpp"
#include "launch/load/load_model.hpp"
#include "launch/placement/pretrained.hpp"

namespace paceline {

Result<std::optional<PipelineConfig>> written_pipeline(const RunOptions& options) {
    if (!options.uses_stages() || options.is_auto()) return std::optional<PipelineConfig>{};
    const Result<ConfigSource> source = config_source(options.config_file, options.method);
    if (!source) return source.error();
    Result<PipelineConfig> config =
        written_config(source.value(), device_of(options.model), options.draft_model);
    if (!config) return config.error();
    return std::optional{std::move(config).value()};
}

Result<ResolvedPipeline> resolve_pipeline(const PipelineConfig& written,
                                          const RunOptions& options,
                                          const ModelFile& file,
                                          const Environment& environment) {
    const PartsSearch search = parts_search(options.model.parts, environment);
    Result<ResolvedConfig> resolved = use_parts(written, search, file);
    if (!resolved) return resolved.error();
    if (!options.wants_gpus()) return ResolvedPipeline{std::move(resolved).value(), {}};
    return place_on_gpus(std::move(resolved).value(), options.model, file,
                         {.gpus = options.gpus,
                          .machine_file = options.machine_file,
                          .described = options.dry_run && !options.machine_file.empty()});
}

Status print_plan(const PipelineConfig& written,
                  const RunOptions& options,
                  const Environment& environment) {
    const Result<ModelFile> file = open_model_file(options.model, environment);
    if (!file) return file.error();
    const Result<ResolvedPipeline> resolved =
        resolve_pipeline(written, options, file.value(), environment);
    if (!resolved) return resolved.error();
    return write_stdout(resolved.value().gpu_table);
}

Status check_machines(const RunOptions& options, const Environment& environment) {
    if (options.dry_run) return {};
    return check_meeting(options.meeting, environment, options.uses_stages() && !options.is_auto());
}

Status check_plan_options(const RunOptions& options) {
    const auto bad = [](const std::string& what) { return Error{Errc::BadArgument, what}; };
    if (!options.model.random.empty() && !options.dry_run) {
        return bad(
            "--random: '" + options.model.random +
            "' has no tokenizer, and this command works on text; bench, inspect and simulate "
            "--measure-costs take synthetic weights, and so does --dry-run");
    }
    if (!options.wants_gpus()) return {};
    if (!options.uses_stages() || options.is_auto())
        return bad("--gpus, --machine and --dry-run place stages; give --method or --config too");
    if (options.model.device != "cpu") return bad(kGpusOrDevice);
    return {};
}

}  // namespace paceline
