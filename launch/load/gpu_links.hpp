// The transports by which tensors can leave a GPU of this machine (ipc/device). No other file of
// launch/ knows their conditions.
//
// Part of paceline_gpu, as gpu.hpp. Any thread; a device is its loop's.
#pragma once

#include <memory>
#include <string>

#include "ipc/base/result.hpp"
#include "ipc/transport/tensor_link.hpp"

namespace paceline {

struct GpuLinks {
    bool local = false;  // tensors of stages may lie in its memory: true if one of those below is
    bool exported = false;  // another process can map its memory
    bool nccl = false;      // the library is there
    std::string why_no_local = {};
    std::string why_no_exported = {};
    std::string why_no_nccl = {};
};

/// Makes no context on the device. The same is taken to hold for all GPUs of a machine.
[[nodiscard]] GpuLinks gpu_links(int gpu);
/// Of a machine that is described: all that a driver and a library of today can do.
[[nodiscard]] inline GpuLinks described_links() {
    return {.local = true, .exported = true, .nccl = true};
}

/// In a stage process, where its backends are. Errors: Unsupported where gpu_links() has nothing.
[[nodiscard]] Result<std::unique_ptr<TensorDevice>> make_gpu_tensor_device(int gpu);

}  // namespace paceline
