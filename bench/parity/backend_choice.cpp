#include "bench/parity/backend_choice.hpp"

#include <optional>
#include <utility>

#include "model/cpu/cpu_backend.hpp"
#include "model/cuda/cuda_backend.hpp"
#include "model/kv_layout.hpp"
#include "model/reference/reference_backend.hpp"

namespace paceline::parity {
namespace {

Error bad_option(const char* option, const std::string& value, const char* allowed) {
    return Error{Errc::BadArgument,
                 std::string(option) + " is '" + value + "'; possible are " + allowed};
}

Result<std::unique_ptr<Backend>> cuda_backend(const ModelFile& file,
                                              Dtype dtype,
                                              KvType kv,
                                              std::int32_t slots) {
#if PACELINE_WITH_CUDA
    CudaOptions options;
    options.dtype = dtype;
    options.kv = kv;
    options.kv_slots = slots;
    Result<std::unique_ptr<CudaBackend>> backend = make_cuda_backend(file, options);
    if (!backend) return backend.error();
    std::unique_ptr<Backend> any = std::move(backend).value();
    return {std::move(any)};
#else
    (void)file, (void)dtype, (void)kv, (void)slots;
    return Error{Errc::Unsupported, "--backend cuda: this program was built without nvcc"};
#endif
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const ModelFile& file,
                                              const BackendChoice& choice,
                                              int positions) {
    const std::optional<KvType> kv = parse_kv_type(choice.kv);
    if (!kv) return bad_option("--kv", choice.kv, "f32, f16 and bf16");
    const std::int32_t slots = pages_for(positions) * kKvPageSlots;
    if (choice.backend == "reference") {
        if (choice.dtype != "f32") return bad_option("--dtype", choice.dtype, "f32 (reference)");
        std::unique_ptr<Backend> backend = std::make_unique<ReferenceBackend>(
            file, ReferenceOptions{.kv_slots = slots, .kv_type = *kv});
        return {std::move(backend)};
    }
    if (choice.backend != "cpu" && choice.backend != "cuda") {
        return bad_option("--backend", choice.backend, "cpu, cuda and reference");
    }
    const std::optional<Dtype> dtype = parse_dtype(choice.dtype);
    if (!dtype) return bad_option("--dtype", choice.dtype, "auto, f32, bf16, int8 and q4");
    if (choice.backend == "cuda") return cuda_backend(file, *dtype, *kv, slots);
    CpuOptions options;
    options.dtype = *dtype;
    options.kv = *kv;
    options.kv_slots = slots;
    options.threads = choice.threads;
    options.usable_cores = choice.threads;
    Result<std::unique_ptr<CpuBackend>> backend = make_cpu_backend(file, options);
    if (!backend) return backend.error();
    std::unique_ptr<Backend> any = std::move(backend).value();
    return {std::move(any)};
}

}  // namespace paceline::parity
