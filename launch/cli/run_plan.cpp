#include "launch/cli/run_plan.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>

#include "launch/base/option_checks.hpp"
#include "launch/base/text_output.hpp"
#include "launch/config/methods.hpp"
#include "launch/load/gpu.hpp"
#include "launch/load/gpu_links.hpp"
#include "launch/load/load_model.hpp"
#include "launch/placement/edge_transports.hpp"
#include "launch/placement/found_machine.hpp"
#include "launch/placement/gpu_table.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/placement/stage_sizes.hpp"
#include "launch/session/pipeline_start.hpp"

namespace paceline {
namespace {

/// The described machine, or this one.
Result<GpuMachine> machine_of(const RunOptions& options, const Machine& host) {
    if (!options.machine_file.empty()) return read_machine_file(options.machine_file);
    GpuInventory inventory = read_gpus();
    if (!inventory.names.empty()) return found_machine(inventory, host);
    return Error{Errc::Unsupported,
                 "no GPU was found (" + inventory.why_none +
                     "); --dry-run --machine FILE (configs/machines) plans for a machine that is "
                     "described, and ends"};
}

/// The numbers of --gpus; all where it does not say.
Result<std::vector<int>> chosen_gpus(const RunOptions& options, const GpuMachine& machine) {
    const int count = static_cast<int>(machine.gpus.size());
    std::vector<int> gpus(static_cast<std::size_t>(count));
    std::iota(gpus.begin(), gpus.end(), 0);
    if (options.gpus.empty() || options.gpus == "all") return gpus;
    gpus = parse_int_list(options.gpus);
    std::vector<int> sorted = gpus;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
        return Error{Errc::BadArgument, "--gpus " + options.gpus + " names a GPU twice"};
    if (sorted.back() < count) return gpus;
    return Error{Errc::BadArgument,
                 fmt::format("--gpus {}: there is no GPU {}, {} has {}", options.gpus,
                             sorted.back(), machine.source, count)};
}

Result<ResolvedPipeline> on_gpus(ResolvedConfig pipeline,
                                 const RunOptions& options,
                                 const ModelFile& file) {
    if (!can_size_gpus()) {
        return Error{Errc::Unsupported,
                     "this program was built without CUDA and cannot compute what stages take of a "
                     "GPU (launch/build --cuda paceline)"};
    }
    const Result<Machine> host = read_machine();
    if (!host) return host.error();
    const Result<GpuMachine> machine = machine_of(options, host.value());
    if (!machine) return machine.error();
    Result<std::vector<int>> gpus = chosen_gpus(options, machine.value());
    if (!gpus) return gpus.error();
    const Result<StageSizes> sizes = StageSizes::open(file, options.model, pipeline, {});
    if (!sizes) return sizes.error();
    // A described machine has its own cores; what runs, runs on those of this one.
    const bool described = options.dry_run && !options.machine_file.empty();
    const GpuRequest request{
        .machine = machine.value(),
        .gpus = std::move(gpus).value(),
        .cores = described ? machine.value().cores() : usable_cores(host.value(), options.model),
        .layers = file.config().layers};
    Result<GpuPlan> plan = plan_gpus(pipeline.config, request, [&](const Placement& placement) {
        return sizes.value().needs(placement);
    });
    if (!plan) return plan.error();
    const Placement& placement = plan.value().placement;
    std::vector<EdgeSpec> edges =
        edges_of(placement, plan.value().config, sizes.value().edges(placement));
    const GpuLinks links = described ? described_links() : gpu_links(request.gpus.front());
    const Result<std::vector<EdgeTransport>> ways =
        choose_transports(edges, placement, plan.value().config, {machine.value(), links});
    if (!ways) return ways.error();
    const std::string transports = transports_text(edges, ways.value(), placement, machine.value());
    std::string table = gpu_table(plan.value(), request, transports);
    ResolvedConfig on_gpus{std::move(plan.value().config), std::move(pipeline.parts)};
    table += parts_text(on_gpus, placement);
    return ResolvedPipeline{std::move(on_gpus), std::move(table)};
}

}  // namespace

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
    return on_gpus(std::move(resolved).value(), options, file);
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
    if (options.model.device != "cpu")
        return bad("--device puts all stages on one GPU; leave it out with --gpus or --machine");
    return {};
}

}  // namespace paceline
