#include "launch/load/gpu_links.hpp"

#include <cstdlib>
#include <utility>

#include "ipc/device/device_links.hpp"

namespace paceline {
namespace {

/// Read here and not by main.cpp: the conductor and its stages, which inherit it, must say the
/// same.
DeviceSettings settings() {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
    const char* library = std::getenv("PACELINE_NCCL_LIBRARY");
    return {.nccl_library = library == nullptr ? "" : library};
}

}  // namespace

GpuLinks gpu_links(int gpu) {
    LinkAbilities found = link_abilities(gpu, settings());
    const bool any = found.exported || found.nccl;
    return {.local = any,
            .exported = found.exported,
            .nccl = found.nccl,
            .why_no_local = any ? "" : found.why_no_exported,
            .why_no_exported = std::move(found.why_no_exported),
            .why_no_nccl = std::move(found.why_no_nccl)};
}

Result<std::unique_ptr<TensorDevice>> make_gpu_tensor_device(int gpu) {
    return make_tensor_device(gpu, settings());
}

}  // namespace paceline
