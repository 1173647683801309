#include "launch/load/make_backend.hpp"

#include <algorithm>

#include "ipc/base/check.hpp"
#include "launch/load/gpu.hpp"
#include "model/cpu/cpu_backend.hpp"
#include "model/eagle/eagle_backend.hpp"

namespace paceline {

CudaOptions cuda_options(const CpuOptions& options, const Device& device) {
    PACE_CHECK(device.gpu.has_value(), "a backend on a GPU");
    CudaOptions cuda;
    cuda.device = *device.gpu;
    cuda.others = device.others;
    cuda.exact = device.exact;
    cuda.dtype = options.dtype;
    cuda.kv = options.kv;
    cuda.first_layer = options.first_layer;
    cuda.last_layer = options.last_layer;
    cuda.kv_slots = options.kv_slots;
    cuda.rows_max = std::min(options.rows_max, cuda::kGemmRowsMax);
    cuda.final_head = options.final_head;
    cuda.heads = options.heads;
    cuda.adapter = options.adapter;
    cuda.eagle = options.eagle;
    cuda.random = options.random;
    cuda.skipped = options.skipped;
    cuda.progress = options.progress;
    return cuda;
}

Result<std::unique_ptr<Backend>> make_backend(const ModelFile& file,
                                              const CpuOptions& options,
                                              const Device& device) {
    if (options.eagle) {
        if (Status fits = check_eagle(*options.eagle, file.config().dim); !fits)
            return fits.error();
    }
    if (device.gpu) return make_gpu_backend(file, cuda_options(options, device));
    Result<std::unique_ptr<CpuBackend>> made = make_cpu_backend(file, options);
    if (!made) return made.error();
    if (!options.eagle) return std::unique_ptr<Backend>{std::move(made).value()};
    return std::unique_ptr<Backend>{
        std::make_unique<EagleBackend>(std::move(made).value(), *options.eagle)};
}

}  // namespace paceline
