#include "launch/cli_version.hpp"

#include "launch/build_info.hpp"
#include "model/kernels/cpu/isa.hpp"

#if PACELINE_WITH_CUDA
#include "model/kernels/cuda/device_probe.hpp"
#endif

namespace paceline {
namespace {

#if PACELINE_WITH_CUDA
/// The toolkit of the build, then a line for each device and whether our code ran on it.
std::string cuda_text() {
    const CudaProbe probe = probe_cuda();
    std::string text = "built with " + probe.runtime;
    if (probe.devices.empty()) text += "; no device: " + probe.problem;
    for (const CudaDevice& device : probe.devices) {
        text +=
            "\n          " + std::to_string(device.index) + " " + device.name + ", sm_" +
            std::to_string(device.capability_major) + std::to_string(device.capability_minor) +
            ", " + std::to_string(device.memory_bytes >> 20) + " MiB, " +
            (device.runs_our_code ? "runs this build's code" : "does NOT run this build's code");
    }
    return text;
}
#else
std::string cuda_text() {
    return "not built (no nvcc was found, or PACELINE_CUDA=OFF)";
}
#endif

}  // namespace

std::string version_text() {
    const BuildInfo& build = build_info();
    std::string text = "paceline ";
    text += build.version;
    text += "\ncommit    ";
    text += build.commit;
    text += "\ncompiler  ";
    text += build.compiler;
    text += std::string{" ("} + build.build_type + ")";
    text += "\nCPU       ";
    text += name(best_isa());
    text += "\nCUDA      ";
    text += cuda_text();
    return text;
}

}  // namespace paceline
