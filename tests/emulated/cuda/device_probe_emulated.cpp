// device_probe.hpp where all devices are emulated ones.
#include "model/kernels/cuda/device_probe.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "tests/emulated/cuda/order.hpp"

namespace paceline {

CudaProbe list_cuda() {
    CudaProbe probe;
    probe.runtime = "an emulated device";
    for (int index = 0; index < cuda::emulated::devices(); ++index) {
        const cuda::DeviceInfo info = cuda::use_device(index);
        probe.devices.push_back({.index = index,
                                 .name = info.name,
                                 .capability_major = info.capability / 10,
                                 .capability_minor = info.capability % 10,
                                 .memory_bytes = info.memory_bytes});
    }
    // Each reaches all others, or none does.
    if (!cuda::emulated::peers_possible()) return probe;
    for (CudaDevice& device : probe.devices) {
        for (const CudaDevice& other : probe.devices) {
            if (other.index != device.index) device.peers.push_back(other.index);
        }
    }
    return probe;
}

CudaProbe probe_cuda() {
    CudaProbe probe = list_cuda();
    for (CudaDevice& device : probe.devices) device.runs_our_code = true;
    return probe;
}

}  // namespace paceline
