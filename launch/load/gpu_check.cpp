#include "launch/load/gpu_check.hpp"

#include <algorithm>
#include <fmt/core.h>

namespace paceline {
namespace {

/// `who` names the device.
Status check_one(const Device& device, const GpuInventory& inventory, const std::string& who) {
    if (!device.gpu || static_cast<std::size_t>(*device.gpu) < inventory.names.size()) return {};
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
        const std::string who = config.file + ": [[stage]] \"" + stage.name + "\": device = \"" +
                                to_text(stage.device) + "\"";
        if (Status s = check_one(stage.device, inventory, who); !s) return s;
    }
    return {};
}

Status check_gpus(const PipelineConfig& config) {
    const bool wanted =
        std::any_of(config.stages.begin(), config.stages.end(),
                    [](const StageConfig& stage) { return stage.device.gpu.has_value(); });
    return wanted ? check_gpus(config, read_gpus()) : Status{};
}

Status check_device(const Device& device) {
    if (device.gpu) return check_one(device, read_gpus(), "--device " + to_text(device));
    if (device.exact) return {};
    return Error{Errc::BadArgument,
                 "--exact off is for a GPU: give it with --device cuda:N; a CPU's products are "
                 "exact"};
}

}  // namespace paceline
