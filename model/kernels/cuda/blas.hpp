// Products by NVIDIA's cuBLAS: the peer that own kernels are measured against, and what `exact =
// off` multiplies large batches with.
//
// cuBLAS picks a kernel by the shape of all that it is given, so the bits of a row depend on how
// many rows come with it. Nothing that promises equal tokens may use it.
//
// The library is looked for when it is first asked for, not linked: the program starts without it.
// Implementation: blas_cuda.cu.
//
// Errors: DeviceError naming call, file, line, device. Threads: an object is used by one at a time.
// C++17.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "model/kernels/cuda/runtime.hpp"

namespace paceline::cuda {

/// Why there is no cuBLAS, naming what was looked for; empty if there is. Any thread.
[[nodiscard]] std::string blas_problem();

/// Device memory that cuBLAS works in: what its manual says for compute capability 9.0. With memory
/// of its own it would allocate while a stream is recorded.
inline constexpr std::size_t kBlasWorkspaceBytes = std::size_t{32} << 20U;

/// y[row][o] = sum over i of x[row][i] * weights[o][i], summed in floats.
struct BlasArgs {
    const void* weights = nullptr;  // bf16 [outputs][weights_stride]
    int weights_stride = 0;         // elements, as all strides
    const void* x = nullptr;        // bf16 [rows][x_stride]
    int x_stride = 0;
    float* y = nullptr;  // [rows][y_stride]
    int y_stride = 0;
    int rows = 0;
    int outputs = 0;
    int inputs = 0;
};

/// cuBLAS on one stream. Borrows stream and workspace; both outlive it.
class Blas {
public:
    /// Precondition: blas_problem() is empty; DeviceError otherwise. `workspace` holds
    /// kBlasWorkspaceBytes of device memory.
    Blas(Stream& stream, std::byte* workspace);
    Blas(const Blas&) = delete;
    Blas& operator=(const Blas&) = delete;
    ~Blas();

    /// Puts a product into the stream. May be recorded, once the same product has run.
    void multiply(const BlasArgs& args);

private:
    struct Handle;  // of the implementation
    Stream& stream_;
    std::unique_ptr<Handle> handle_;
};

}  // namespace paceline::cuda
