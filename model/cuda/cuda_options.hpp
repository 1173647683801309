// CudaOptions: what a backend on a GPU is made of.
//
// The dtype rules are those of model/cpu/cpu_options.hpp: the same --dtype means the same weights
// on both. But float16 becomes bf16, and so does float32 in a file whose other matrices are
// something else (gpu_type()).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/adapter_spec.hpp"
#include "model/backend.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/eagle_spec.hpp"
#include "model/kernels/cuda/rows.hpp"
#include "model/rows.hpp"

namespace paceline {

struct CudaOptions {
    int device = 0;
    // Further devices that compute the same with it, each a part of every matrix (CudaPart): up to
    // cuda::kOthersMax, of one kind, that reach each other's memory. No bit depends on them.
    std::vector<int> others{};
    Dtype dtype = Dtype::Auto;
    KvType kv = KvType::BF16;
    int first_layer = 0;
    int last_layer = -1;        // -1: all layers
    std::int32_t kv_slots = 0;  // rounded up to whole pages
    // Computed at once, up to cuda::kGemmRowsMax: weights are read once for so many rows of a
    // prefill. Larger calls are cut into such batches, heads and draws into ones of 64 at most.
    int rows_max = 512;
    bool graphs = true;  // batches are recorded and replayed
    // Whether a row's bits are the same in any batch. If not, batches of more than 64 rows are
    // multiplied by cuBLAS where weights are bf16 (gemm_blas.hpp): two runs may give two texts.
    bool exact = true;
    bool final_head = false;        // norm and head also for a segment that does not end the model
    std::vector<HeadSpec> heads{};  // HeadId 1, 2, ...
    std::optional<AdapterSpec> adapter{};    // of an exit: Backend::run_adapter()
    std::optional<EagleSpec> eagle{};        // CudaBackend::eagle_layer(); of a first segment
    std::optional<std::uint64_t> random{};   // seed of weights that the model has no bytes for
                                             // (model/weights/synthetic/synthetic_model.hpp)
    SublayerMask skipped{};                  // as CpuOptions::skipped
    std::function<void(double)> progress{};  // called with 0 .. 1 while weights are loaded
};

[[nodiscard]] cuda::CacheType cache_type(KvType type);
/// The device, then the others.
[[nodiscard]] std::vector<int> devices_of(const CudaOptions& options);
/// "cuda:0", "cuda:0,cuda:1".
[[nodiscard]] std::string device_text(const CudaOptions& options);

}  // namespace paceline
