#include "launch/placement/edge_transports.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <optional>

#include "launch/placement/gpu_groups.hpp"

namespace paceline {
namespace {

/// A transport, or why the one that is forced cannot be.
struct Chosen {
    Transport transport = Transport::Host;
    std::string reason;
    bool refused = false;
};

bool computes_on_two(const Placement& placement, const PlacedProcess& process) {
    std::optional<int> first;
    for (const StageId id : process.stages) {
        // Tensors of a group begin and end at its first GPU.
        const std::optional<int> gpu = placement.stage(id).device.gpu;
        if (gpu && first && *gpu != *first) return true;
        if (gpu) first = gpu;
    }
    return false;
}

/// Between GPUs of two processes.
Chosen between_processes(int from, int to, TransportChoice choice, const DevicePaths& ways) {
    const bool one = from == to;
    const std::string both =
        one ? fmt::format("both on cuda:{}", from) : fmt::format("cuda:{} and cuda:{}", from, to);
    if (!ways.machine.together(from, to))
        return {Transport::Host, "on two machines",
                choice == TransportChoice::Exported || choice == TransportChoice::Nccl};
    const bool reach = ways.machine.reach(from, to);
    std::string why_no_exported = ways.links.exported ? "" : ways.links.why_no_exported;
    if (!reach) why_no_exported = both + " do not reach each other";
    const bool exported = ways.links.exported && reach;
    switch (choice) {
        case TransportChoice::Host:
            return {Transport::Host, "transport = \"host\""};
        case TransportChoice::Exported:
            if (!exported) return {Transport::Host, why_no_exported, true};
            return {Transport::Exported, "transport = \"exported\""};
        case TransportChoice::Nccl:
            if (!ways.links.nccl) return {Transport::Host, ways.links.why_no_nccl, true};
            return {Transport::Nccl, "transport = \"nccl\""};
        case TransportChoice::Auto:
            break;
    }
    if (exported) return {Transport::Exported, one ? both : both + " reach each other"};
    // A communicator takes each GPU once.
    if (one) return {Transport::Host, why_no_exported};
    if (ways.links.nccl) return {Transport::Nccl, why_no_exported};
    return {Transport::Host, why_no_exported + "; no NCCL: " + ways.links.why_no_nccl};
}

/// Whether it carries the features of an EAGLE draft: these wait on the host for the pass that puts
/// them into their slots.
bool has_features(const Placement& placement, const PipelineConfig& config, const EdgeSpec& edge) {
    return config.draft && config.draft->reads_features() && edge.from == placement.verifier() &&
           edge.to == placement.draft();
}

Chosen choose(const Placement& placement,
              const EdgeSpec& edge,
              TransportChoice choice,
              const DevicePaths& ways) {
    const PlacedStage& from = placement.stage(edge.from);
    const PlacedStage& to = placement.stage(edge.to);
    for (const PlacedStage* stage : {&from, &to}) {
        if (!stage->device.gpu) return {Transport::Host, stage->name + " is on the CPU"};
    }
    const PlacedProcess& from_process = placement.process_of(from.id);
    const PlacedProcess& to_process = placement.process_of(to.id);
    const bool same = &from_process == &to_process;
    if (from_process.machine != to_process.machine) return {Transport::Host, "on two machines"};
    const bool forced = choice == TransportChoice::Exported || choice == TransportChoice::Nccl;
    for (const PlacedProcess* process : {&from_process, &to_process}) {
        if (!computes_on_two(placement, *process)) continue;
        return {Transport::Host, "process " + process->name + " computes on two GPUs",
                forced && !same};
    }
    if (!same) return between_processes(*from.device.gpu, *to.device.gpu, choice, ways);
    if (choice == TransportChoice::Host) return {Transport::Host, "transport = \"host\""};
    if (!ways.links.local) return {Transport::Host, ways.links.why_no_local};
    return {Transport::Local, "in the same process"};
}

std::string title(const Placement& placement, const EdgeSpec& edge) {
    return placement.stage(edge.from).name + " -> " + placement.stage(edge.to).name;
}

/// As the table of the plan writes it.
std::string device_text(const GpuMachine& machine, const Device& device) {
    if (machine.nodes.empty() || !device.gpu) return to_text(device);
    return machine.gpu_name(*device.gpu);
}

const char* word_of(TransportChoice choice) {
    return choice == TransportChoice::Exported ? "exported" : "nccl";
}

}  // namespace

Result<std::vector<EdgeTransport>> choose_transports(std::vector<EdgeSpec>& edges,
                                                     const Placement& placement,
                                                     const PipelineConfig& config,
                                                     const DevicePaths& ways) {
    const bool forced =
        config.transport == TransportChoice::Exported || config.transport == TransportChoice::Nccl;
    std::vector<EdgeTransport> reasons;
    bool applies = false;
    for (EdgeSpec& edge : edges) {
        if (edge.tensor_slots == 0) continue;
        edge.name = title(placement, edge);
        Chosen choice = has_features(placement, config, edge)
                            ? Chosen{Transport::Host, "features wait on the host for their pass"}
                            : choose(placement, edge, config.transport, ways);
        if (choice.refused) {
            return Error{
                Errc::BadArgument,
                fmt::format("{}: [pipeline] transport = \"{}\" cannot be for {}: {}", config.file,
                            word_of(config.transport), edge.name, choice.reason)};
        }
        edge.transport = choice.transport;
        applies = applies || has_link(choice.transport);
        reasons.push_back({edge.from, edge.to, std::move(choice.reason)});
    }
    if (!forced || applies) return reasons;
    return Error{Errc::BadArgument,
                 fmt::format("{}: [pipeline] transport = \"{}\" applies to nothing: no tensors "
                             "travel between GPUs of two processes",
                             config.file, word_of(config.transport))};
}

std::string transports_text(const std::vector<EdgeSpec>& edges,
                            const std::vector<EdgeTransport>& ways,
                            const Placement& placement,
                            const GpuMachine& machine) {
    std::string text;
    for (const EdgeSpec& edge : edges) {
        const auto way = std::find_if(ways.begin(), ways.end(), [&](const EdgeTransport& one) {
            return one.from == edge.from && one.to == edge.to;
        });
        if (way == ways.end()) continue;
        const PlacedStage& from = placement.stage(edge.from);
        const PlacedStage& to = placement.stage(edge.to);
        const bool keys = from.role != StageRole::Segment;
        text += fmt::format("{}, {}: {} to {}", title(placement, edge),
                            keys ? "keys and values" : "hidden states",
                            device_text(machine, from.device), device_text(machine, to.device));
        if (from.device.gpu && to.device.gpu && *from.device.gpu != *to.device.gpu) {
            const GpuLink link = machine.link(*from.device.gpu, *to.device.gpu);
            text += fmt::format(" (link {})", to_text(link));
        }
        text += fmt::format(", {}: {}\n", name_of(edge.transport), way->reason);
    }
    for (const PlacedStage& stage : placement.stages) {
        if (goes_through_host(machine, stage.device.gpus()))
            text += fmt::format(
                "{}, parts of each layer: {}, through the host's memory: they do "
                "not reach each other\n",
                stage.name, device_text(machine, stage.device));
    }
    return text;
}

bool has_gpus(const Placement& placement) {
    return std::any_of(placement.stages.begin(), placement.stages.end(),
                       [](const PlacedStage& stage) { return stage.device.gpu.has_value(); });
}

}  // namespace paceline
