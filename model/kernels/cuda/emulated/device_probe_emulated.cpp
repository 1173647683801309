// device_probe.hpp where there is one device, the emulated one.
#include "model/kernels/cuda/device_probe.hpp"
#include "model/kernels/cuda/runtime.hpp"

namespace paceline {

CudaProbe list_cuda() {
    const cuda::DeviceInfo info = cuda::use_device(0);
    CudaProbe probe;
    probe.runtime = "an emulated device";
    probe.devices.push_back({.index = 0,
                             .name = info.name,
                             .capability_major = info.capability / 10,
                             .capability_minor = info.capability % 10,
                             .memory_bytes = info.memory_bytes});
    return probe;
}

CudaProbe probe_cuda() {
    CudaProbe probe = list_cuda();
    for (CudaDevice& device : probe.devices) device.runs_our_code = true;
    return probe;
}

}  // namespace paceline
