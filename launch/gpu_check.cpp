#include "launch/gpu_check.hpp"

#include <algorithm>

#if PACELINE_WITH_CUDA
#include "model/kernels/cuda/device_probe.hpp"
#endif

namespace paceline {

#if PACELINE_WITH_CUDA
GpuInventory read_gpus() {
    const CudaProbe probe = probe_cuda();
    GpuInventory inventory;
    for (const CudaDevice& device : probe.devices) inventory.names.push_back(device.name);
    if (probe.devices.empty()) inventory.why_none = probe.problem;
    return inventory;
}
#else
GpuInventory read_gpus() {
    return {.names = {}, .why_none = "this program was built without CUDA"};
}
#endif

Status check_gpus(const PipelineConfig& config, const GpuInventory& inventory) {
    for (const StageConfig& stage : config.stages) {
        if (!stage.device.gpu) continue;
        const auto number = static_cast<std::size_t>(*stage.device.gpu);
        const std::string what = config.file + ": [[stage]] \"" + stage.name + "\": device = \"" +
                                 to_text(stage.device) + "\" ";
        if (number < inventory.names.size()) {
            return Error{Errc::Unsupported, what + "is there (" + inventory.names[number] +
                                                "), but stages do not run on GPUs yet; use "
                                                "device = \"cpu\""};
        }
        std::string there;
        for (std::size_t i = 0; i < inventory.names.size(); ++i) {
            there += (i == 0 ? "" : ", ") + ("cuda:" + std::to_string(i)) + " (" +
                     inventory.names[i] + ")";
        }
        if (there.empty()) there = "only the CPU (" + inventory.why_none + ")";
        return Error{Errc::BadArgument, what + "does not exist; there is " + there};
    }
    return {};
}

Status check_gpus(const PipelineConfig& config) {
    const bool wanted =
        std::any_of(config.stages.begin(), config.stages.end(),
                    [](const StageConfig& stage) { return stage.device.gpu.has_value(); });
    return wanted ? check_gpus(config, read_gpus()) : Status{};
}

}  // namespace paceline
