// blas.hpp on NVIDIA's library, found at run time. Its headers give the types; a toolkit without
// them makes a program without cuBLAS.
#include <dlfcn.h>
#include <string>
#include <type_traits>

#include <cuda_runtime.h>

#include "model/kernels/cuda/blas.hpp"
#include "model/kernels/cuda/launch.cuh"

#if __has_include(<cublas_v2.h>)

#include <cublas_v2.h>

// The library's names carry versions, which its header puts in by macros.
#define BLAS_TEXT_OF(name) #name
#define BLAS_SYMBOL(name) BLAS_TEXT_OF(name)
#define BLAS_CHECK(call) check((call), #call, __LINE__)

namespace paceline::cuda {
namespace {

// C++ has an overload of that name beside the library's own.
using Gemm = cublasStatus_t(cublasHandle_t,
                            cublasOperation_t,
                            cublasOperation_t,
                            int,
                            int,
                            int,
                            const void*,
                            const void*,
                            cudaDataType,
                            int,
                            const void*,
                            cudaDataType,
                            int,
                            const void*,
                            void*,
                            cudaDataType,
                            int,
                            cublasComputeType_t,
                            cublasGemmAlgo_t);
static_assert(std::is_pointer_v<decltype(static_cast<Gemm*>(&cublasGemmEx))>, "the library's");

/// The entry points that are used, of a library that stays open as long as the process.
struct Library {
    decltype(&cublasCreate) create = nullptr;
    decltype(&cublasDestroy) destroy = nullptr;
    decltype(&cublasSetStream) set_stream = nullptr;
    decltype(&cublasSetWorkspace) set_workspace = nullptr;
    Gemm* gemm = nullptr;
    decltype(&cublasGetStatusString) words = nullptr;
    std::string problem;  // empty: all of them are there
};

template <class Function>
void find(void* library, const char* symbol, Function& function, std::string& problem) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    if (function == nullptr && problem.empty())
        problem = std::string("cuBLAS has no ") + symbol + ": another version is needed";
}

Library open_library() {
    Library found;
    std::string tried;
    void* library = nullptr;
    // By number first: the bare name may be any version, and comes with the toolkit alone.
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so",
                             "/usr/local/cuda/lib64/libcublas.so"}) {
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library != nullptr) break;
        const char* why = dlerror();
        if (tried.empty() && why != nullptr) tried = why;
    }
    if (library == nullptr) {
        found.problem =
            "libcublas.so.13 or .12 is not there (LD_LIBRARY_PATH names folders to look in): " +
            tried;
        return found;
    }
    find(library, BLAS_SYMBOL(cublasCreate), found.create, found.problem);
    find(library, BLAS_SYMBOL(cublasDestroy), found.destroy, found.problem);
    find(library, BLAS_SYMBOL(cublasSetStream), found.set_stream, found.problem);
    find(library, BLAS_SYMBOL(cublasSetWorkspace), found.set_workspace, found.problem);
    find(library, BLAS_SYMBOL(cublasGemmEx), found.gemm, found.problem);
    find(library, BLAS_SYMBOL(cublasGetStatusString), found.words, found.problem);
    return found;
}

const Library& library() {
    static const Library one = open_library();
    return one;
}

[[noreturn]] void fail(const std::string& what, const std::string& why, int line) {
    int device = -1;
    (void)cudaGetDevice(&device);
    (void)cudaGetLastError();  // one that can be forgotten should not show up in the next call
    throw DeviceError(what + " at blas_cuda.cu:" + std::to_string(line) + ", device " +
                      std::to_string(device) + ": " + why);
}

void check(cublasStatus_t status, const std::string& call, int line) {
    if (status != CUBLAS_STATUS_SUCCESS) fail(call, library().words(status), line);
}

}  // namespace

std::string blas_problem() {
    return library().problem;
}

struct Blas::Handle {
    cublasHandle_t blas = nullptr;
    int device = 0;  // that it was made on, and has to go on
    ~Handle() {
        if (blas == nullptr) return;
        (void)cudaSetDevice(device);
        (void)library().destroy(blas);
    }
};

Blas::Blas(Stream& stream, std::byte* workspace)
    : stream_(stream), handle_(std::make_unique<Handle>()) {
    if (!library().problem.empty()) fail("cublasCreate", library().problem, __LINE__);
    (void)cudaGetDevice(&handle_->device);
    BLAS_CHECK(library().create(&handle_->blas));
    BLAS_CHECK(library().set_stream(handle_->blas, stream.handle().stream));
    // After the stream: setting that takes the workspace away.
    BLAS_CHECK(library().set_workspace(handle_->blas, workspace, kBlasWorkspaceBytes));
}

Blas::~Blas() = default;

void Blas::multiply(const BlasArgs& args) {
    // None of our kernels: the one after it may not begin before it has ended.
    stream_.handle().after_kernel = false;
    const float one = 1.0F;
    const float zero = 0.0F;
    // cuBLAS counts by columns: its matrices are ours turned, and so y is [outputs x rows] there.
    const cublasStatus_t status = library().gemm(
        handle_->blas, CUBLAS_OP_T, CUBLAS_OP_N, args.outputs, args.rows, args.inputs, &one,
        args.weights, CUDA_R_16BF, args.weights_stride, args.x, CUDA_R_16BF, args.x_stride, &zero,
        args.y, CUDA_R_32F, args.y_stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    check(status,
          "cublasGemmEx of " + std::to_string(args.outputs) + " outputs, " +
              std::to_string(args.rows) + " rows, " + std::to_string(args.inputs) + " inputs",
          __LINE__);
}

}  // namespace paceline::cuda

#else

namespace paceline::cuda {

std::string blas_problem() {
    return "this program was built without cuBLAS's headers";
}

struct Blas::Handle {};

Blas::Blas(Stream& stream, std::byte* /*workspace*/) : stream_(stream) {
    throw DeviceError("cublasCreate: " + blas_problem());
}

Blas::~Blas() = default;

void Blas::multiply(const BlasArgs& /*args*/) {
    throw DeviceError("cublasGemmEx: " + blas_problem());
}

}  // namespace paceline::cuda

#endif
