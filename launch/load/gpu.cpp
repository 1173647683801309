#include "launch/load/gpu.hpp"

#include <fmt/core.h>

#if PACELINE_WITH_CUDA
#include "model/cuda/cuda_backend.hpp"
#include "model/cuda/cuda_unsupported.hpp"
#include "model/eagle/eagle_backend.hpp"
#include "model/kernels/cuda/device_probe.hpp"
#endif

namespace paceline {

#if PACELINE_WITH_CUDA

GpuInventory read_gpus() {
    const CudaProbe probe = list_cuda();
    GpuInventory inventory;
    for (const CudaDevice& device : probe.devices) {
        inventory.names.push_back(device.name);
        inventory.memory.push_back(device.memory_bytes);
        inventory.pci_places.push_back(device.pci_place);
        inventory.peers.push_back(device.peers);
    }
    if (probe.devices.empty()) inventory.why_none = probe.problem;
    return inventory;
}

std::string gpu_version_text() {
    const CudaProbe probe = probe_cuda();
    std::string text = "built with " + probe.runtime;
    if (probe.devices.empty()) text += "; no device: " + probe.problem;
    for (const CudaDevice& device : probe.devices) {
        text += fmt::format(
            "\n          {} {}, sm_{}{}, {} MiB, {}", device.index, device.name,
            device.capability_major, device.capability_minor, device.memory_bytes >> 20,
            (device.runs_our_code ? "runs this build's code" : "does NOT run this build's code"));
    }
    return text;
}

std::vector<MemoryUse> gpu_memory(const ModelFile& file, const CudaOptions& options) {
    std::vector<MemoryUse> uses = cuda_memory_of_each(file, options);
    CudaOptions whole = options;
    if (whole.last_layer < 0) whole.last_layer = file.config().layers;
    for (MemoryUse& use : uses) use.workspace_bytes += recording_bytes(whole);
    return uses;
}

bool can_size_gpus() {
    return true;
}

Result<std::unique_ptr<Backend>> make_gpu_backend(const ModelFile& file,
                                                  const CudaOptions& options) {
    Result<std::unique_ptr<CudaBackend>> made = make_cuda_backend(file, options);
    if (!made) return made.error();
    if (!options.eagle) return std::unique_ptr<Backend>{std::move(made).value()};
    EagleLayer& steps = *made.value()->eagle_layer();
    return std::unique_ptr<Backend>{
        std::make_unique<EagleBackend>(std::move(made).value(), steps, options.eagle->states())};
}

#else

namespace {
constexpr const char* kNotBuilt =
    "this program was built without CUDA (launch/build --cuda paceline)";
}

GpuInventory read_gpus() {
    return {.names = {}, .why_none = kNotBuilt};
}

std::string gpu_version_text() {
    return "not built (launch/build --cuda builds it where nvcc is)";
}

std::vector<MemoryUse> gpu_memory(const ModelFile& /*file*/, const CudaOptions& options) {
    return std::vector<MemoryUse>(1 + options.others.size());
}

bool can_size_gpus() {
    return false;
}

Result<std::unique_ptr<Backend>> make_gpu_backend(const ModelFile& /*file*/,
                                                  const CudaOptions& options) {
    return Error{Errc::Unsupported, fmt::format("cuda:{}: {}", options.device, kNotBuilt)};
}

#endif

}  // namespace paceline
