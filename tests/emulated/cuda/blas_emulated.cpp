// blas.hpp where there is no library: one thread a product of two rows, inputs from the last to the
// first, so that bits differ from those of the kernels as cuBLAS's do.
#include "model/kernels/cuda/blas.hpp"
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/launch.cuh"
#include "tests/emulated/cuda/order.hpp"

namespace paceline::cuda {
namespace {

std::string& problem() {
    static std::string one;
    return one;
}

std::size_t place(int row, int stride, int column) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(stride) +
           static_cast<std::size_t>(column);
}

float element(const void* values, std::size_t at) {
    return bf16_to_float(static_cast<const std::uint16_t*>(values)[at]);
}

void blas(BlasArgs args) {
    const int row = block_x();
    for (int o = thread_index(); o < args.outputs; o += block_size()) {
        float sum = 0.0f;
        for (int i = args.inputs - 1; i >= 0; --i) {
            sum += element(args.weights, place(o, args.weights_stride, i)) *
                   element(args.x, place(row, args.x_stride, i));
        }
        args.y[place(row, args.y_stride, o)] = sum;
    }
}

}  // namespace

namespace emulated {

void set_blas_problem(const std::string& what) {
    problem() = what;
}

}  // namespace emulated

std::string blas_problem() {
    return problem();
}

struct Blas::Handle {
    std::byte* workspace;
};

Blas::Blas(Stream& stream, std::byte* workspace)
    : stream_{stream}, handle_{std::make_unique<Handle>(Handle{workspace})} {
    if (!problem().empty()) throw DeviceError("cublasCreate: " + problem());
    // All of it must be there, though nothing here needs it.
    stream.fill(workspace, 0, kBlasWorkspaceBytes);
}

Blas::~Blas() = default;

void Blas::multiply(const BlasArgs& args) {
    // Another kernel's workspace is overwritten as the library would.
    stream_.fill(handle_->workspace, 0xFF, 256);
    LaunchShape shape;
    shape.blocks_x = args.rows;
    launch(stream_, shape, blas, args);
}

}  // namespace paceline::cuda
