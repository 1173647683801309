#include "launch/load/gpu_check.hpp"

#include <algorithm>
#include <fmt/core.h>

namespace paceline {
namespace {

/// Of GPUs that are there: whether they can share a stage, as far as that is known by now.
Status check_together(const std::vector<int>& gpus,
                      const GpuInventory& inventory,
                      const std::string& who) {
    const auto bad = [&](const std::string& why) { return Error{Errc::BadArgument, who + why}; };
    if (const auto problem = list_problem(gpus)) return bad(" " + *problem);
    const auto name = [&](int gpu) { return inventory.names[static_cast<std::size_t>(gpu)]; };
    for (const int gpu : gpus) {
        const int first = gpus.front();
        if (name(gpu) != name(first))
            return bad(": " + kinds_differ(first, name(first), gpu, name(gpu)));
    }
    return {};
}

/// `who` names the device.
Status check_one(const Device& device, const GpuInventory& inventory, const std::string& who) {
    const std::vector<int> gpus = device.gpus();
    const bool all_there = std::all_of(gpus.begin(), gpus.end(), [&](int gpu) {
        return static_cast<std::size_t>(gpu) < inventory.names.size();
    });
    if (all_there) return check_together(gpus, inventory, who);
    std::string there;
    for (std::size_t i = 0; i < inventory.names.size(); ++i) {
        there +=
            (i == 0 ? "" : ", ") + (fmt::format("cuda:{}", i)) + " (" + inventory.names[i] + ")";
    }
    if (there.empty()) there = "only the CPU (" + inventory.why_none + ")";
    return Error{Errc::BadArgument, who + " does not exist; available: " + there};
}

}  // namespace

Status check_gpus(const PipelineConfig& config, const GpuInventory& inventory) {
    for (const StageConfig& stage : config.stages) {
        if (!stage.node.empty()) continue;  // its own machine says what is there
        if (stage.tensor > 1 &&
            stage.device.gpus().size() != static_cast<std::size_t>(stage.tensor))
            return Error{
                Errc::BadArgument,
                fmt::format("{}: [[stage]] \"{}\": tensor = {}: no plan has chosen the GPUs; "
                            "give --gpus (launch/paceline-launch), or name them: device = "
                            "[\"cuda:0\", \"cuda:1\"]",
                            config.file, stage.name, stage.tensor)};
        const std::string who = config.file + ": [[stage]] \"" + stage.name + "\": device = \"" +
                                to_text(stage.device) + "\"";
        if (Status s = check_one(stage.device, inventory, who); !s) return s;
    }
    return {};
}

Status check_gpus(const PipelineConfig& config) {
    const bool wanted =
        std::any_of(config.stages.begin(), config.stages.end(),
                    [](const StageConfig& stage) { return stage.device.gpu || stage.tensor > 1; });
    return wanted ? check_gpus(config, read_gpus()) : Status{};
}

Status check_device(const Device& device) {
    if (!device.others.empty() && !device.exact)
        return Error{Errc::BadArgument,
                     "--device " + to_text(device) +
                         " with --exact off: cuBLAS multiplies on one GPU alone; leave out one of "
                         "the two"};
    if (device.gpu) return check_one(device, read_gpus(), "--device " + to_text(device));
    if (device.exact) return {};
    return Error{Errc::BadArgument,
                 "--exact off is for a GPU: give it with --device cuda:N; a CPU's products are "
                 "exact"};
}

}  // namespace paceline
