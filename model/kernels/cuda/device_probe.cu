#include <cstdio>
#include <string>

#include <cuda_runtime.h>

#include "model/kernels/cuda/device_probe.hpp"

namespace paceline {
namespace {

constexpr unsigned kThreads = 32;

/// Writes what only code built for this device can: the sum of the thread numbers of a warp.
__global__ void add_lanes(unsigned* out) {
    unsigned value = threadIdx.x;
    for (unsigned offset = kThreads / 2; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, offset);
    }
    if (threadIdx.x == 0) *out = value;
}

/// Device memory for one number; freed when it goes out of scope.
class DeviceWord {
public:
    DeviceWord() { ok_ = cudaMalloc(&word_, sizeof(unsigned)) == cudaSuccess; }
    ~DeviceWord() {
        if (ok_) (void)cudaFree(word_);
    }
    DeviceWord(const DeviceWord&) = delete;
    DeviceWord& operator=(const DeviceWord&) = delete;
    [[nodiscard]] bool ok() const { return ok_; }
    [[nodiscard]] unsigned* get() const { return word_; }

private:
    unsigned* word_ = nullptr;
    bool ok_ = false;
};

bool runs_our_code(int device) {
    if (cudaSetDevice(device) != cudaSuccess) return false;
    const DeviceWord word;
    if (!word.ok()) return false;
    add_lanes<<<1, kThreads>>>(word.get());
    unsigned sum = 0;
    return cudaGetLastError() == cudaSuccess &&
           cudaMemcpy(&sum, word.get(), sizeof sum, cudaMemcpyDeviceToHost) == cudaSuccess &&
           sum == kThreads * (kThreads - 1) / 2;
}

/// A question to the driver, which makes no context.
std::vector<int> peers_of(int device, int count) {
    std::vector<int> peers;
    for (int other = 0; other < count; ++other) {
        int can = 0;
        const bool known =
            other != device && cudaDeviceCanAccessPeer(&can, device, other) == cudaSuccess;
        if (known && can != 0) peers.push_back(other);
    }
    return peers;
}

}  // namespace

CudaProbe list_cuda() {
    CudaProbe probe;
    probe.runtime =
        std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
        probe.problem = cudaGetErrorString(status);
        return probe;
    }
    if (count == 0) probe.problem = "no device";
    for (int index = 0; index < count; ++index) {
        cudaDeviceProp properties{};
        if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;
        char place[32];
        std::snprintf(place, sizeof place, "%04x:%02x:%02x.0", properties.pciDomainID,
                      properties.pciBusID, properties.pciDeviceID);
        probe.devices.push_back({index, properties.name, properties.major, properties.minor,
                                 properties.totalGlobalMem, false, place, peers_of(index, count)});
    }
    return probe;
}

CudaProbe probe_cuda() {
    CudaProbe probe = list_cuda();
    for (CudaDevice& device : probe.devices) device.runs_our_code = runs_our_code(device.index);
    return probe;
}

}  // namespace paceline
