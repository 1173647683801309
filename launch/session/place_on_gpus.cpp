#include "launch/session/place_on_gpus.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>

#include "launch/base/option_checks.hpp"
#include "launch/load/gpu.hpp"
#include "launch/load/gpu_links.hpp"
#include "launch/placement/edge_transports.hpp"
#include "launch/placement/found_machine.hpp"
#include "launch/placement/gpu_table.hpp"
#include "launch/placement/kv_room.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/placement/stage_sizes.hpp"
#include "launch/session/pipeline_start.hpp"

namespace paceline {
namespace {

/// The described machine, or this one.
Result<GpuMachine> machine_of(const GpuChoice& choice, const Machine& host) {
    if (!choice.machine_file.empty()) return read_machine_file(choice.machine_file);
    GpuInventory inventory = read_gpus();
    if (!inventory.names.empty()) return found_machine(inventory, host);
    return Error{Errc::Unsupported,
                 "no GPU was found (" + inventory.why_none +
                     "); --dry-run --machine FILE (configs/machines) plans for a machine that is "
                     "described, and ends"};
}

/// The numbers of --gpus; all where it does not say.
Result<std::vector<int>> chosen_gpus(const GpuChoice& choice, const GpuMachine& machine) {
    const int count = static_cast<int>(machine.gpus.size());
    std::vector<int> gpus(static_cast<std::size_t>(count));
    std::iota(gpus.begin(), gpus.end(), 0);
    if (choice.gpus.empty() || choice.gpus == "all") return gpus;
    gpus = parse_int_list(choice.gpus);
    std::vector<int> sorted = gpus;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
        return Error{Errc::BadArgument, "--gpus " + choice.gpus + " names a GPU twice"};
    if (sorted.back() < count) return gpus;
    return Error{Errc::BadArgument, fmt::format("--gpus {}: there is no GPU {}, {} has {}",
                                                choice.gpus, sorted.back(), machine.source, count)};
}

}  // namespace

Result<ResolvedPipeline> place_on_gpus(ResolvedConfig pipeline,
                                       const ModelOptions& model,
                                       const ModelFile& file,
                                       const GpuChoice& choice) {
    if (!can_size_gpus()) {
        return Error{Errc::Unsupported,
                     "this program was built without CUDA and cannot compute what stages take of a "
                     "GPU (launch/build --cuda paceline)"};
    }
    const Result<Machine> host = read_machine();
    if (!host) return host.error();
    const Result<GpuMachine> machine = machine_of(choice, host.value());
    if (!machine) return machine.error();
    if (!machine.value().nodes.empty() && !choice.described)
        return Error{Errc::Unsupported,
                     "--machine " + choice.machine_file +
                         " describes several machines ([[node]]): with it a plan can be shown "
                         "(--dry-run); stages that run name their `node` and `device`"};
    Result<std::vector<int>> gpus = chosen_gpus(choice, machine.value());
    if (!gpus) return gpus.error();
    const Result<StageSizes> sizes = StageSizes::open(file, model, pipeline, {});
    if (!sizes) return sizes.error();
    if (Status s = sizes.value().check_groups(pipeline.config); !s) return s.error();
    // A described machine has its own cores; what runs, runs on those of this one.
    const bool described = choice.described;
    const GpuRequest request{
        .machine = machine.value(),
        .gpus = std::move(gpus).value(),
        .cores = described ? machine.value().cores() : usable_cores(host.value(), model),
        .layers = file.config().layers,
        .kv_heads = file.config().kv_heads};
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
    table += kv_room_text(sizes.value().text_slots(), sizes.value().context(), plan.value().needs);
    table += parts_text(on_gpus, placement);
    return ResolvedPipeline{std::move(on_gpus), std::move(table)};
}

}  // namespace paceline
