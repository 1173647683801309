// launch() of launch.cuh on the CUDA runtime. Included by it alone, by files that nvcc compiles.
#pragma once

#include <cstddef>
#include <type_traits>

#include <cuda_runtime.h>

namespace paceline::cuda {

struct Stream::Handle {
    cudaStream_t stream = nullptr;
    // Whether the last thing put into it is a kernel. Only with one can a kernel overlap: after a
    // copy, an event, or first in a recording it waits as any other would.
    bool after_kernel = false;
    bool overlaps = false;  // from 9.0 on: before, kernels have no way to wait for the one before
};

namespace native {

/// Lets blocks of `kernel` have so much shared memory, if that is more than every kernel may have.
/// Asks the device once for each kernel and size. Any thread.
void allow_shared_bytes(const void* kernel, std::size_t bytes);

/// Throws DeviceError with the kernel's name and its shape, if `status` is an error.
void check_launch(cudaError_t status, const void* kernel, const LaunchShape& shape);

/// The argument's type follows from the kernel; so `{...}` may stand for it.
template <class T>
struct Same {
    using Type = T;
};

}  // namespace native

template <class Args>
void launch(Stream& stream,
            const LaunchShape& shape,
            void (*kernel)(Args),
            const typename native::Same<Args>::Type& args) {
    static_assert(std::is_trivially_copyable_v<Args>);
    const auto* const address = reinterpret_cast<const void*>(kernel);
    native::allow_shared_bytes(address, shape.shared_bytes);
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim =
        dim3(static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y));
    config.blockDim = dim3(static_cast<unsigned>(shape.threads));
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream.handle().stream;
    config.attrs = &overlap;
    const Stream::Handle& handle = stream.handle();
    config.numAttrs = shape.overlaps_previous && handle.after_kernel && handle.overlaps ? 1 : 0;
    native::check_launch(cudaLaunchKernelEx(&config, kernel, args), address, shape);
    stream.handle().after_kernel = true;
}

}  // namespace paceline::cuda
