// CpuOptions: what a CPU backend is made of, and the rules for packed types.
//
// Which packed type a stored type becomes (--dtype):
//
//     stored                      auto    f32    bf16    int8    q4
//     F32                         f32     f32    bf16    int8    q4
//     F16                         f16*    f32    bf16    int8    q4      (f16 is bf16 on a GPU)
//     BF16                        bf16    f32    bf16    int8    q4
//     Q8_0                        int8*   f32    bf16    int8*   q4
//     Q4_0, Q4_1                  q4*     f32    bf16    int8    q4*
//     Q2_K, Q3_K, Q4_K, IQ4_XS    own*    f32    bf16    int8    own*   (own: q2_k, ..., mxfp4)
//     IQ4_NL, MXFP4               own*    f32    bf16    int8*   own*
//     Q5_0                        own*    f32    bf16    int8*   q4
//     Q5_1, Q5_K, Q6_K            own*    f32    bf16    int8    q4
//     *: the file's numbers, exactly; of MXFP4 as int8 within float16's powers of two
//
// Under q4 an embedding or head that is stored in more than 4 bits keeps its own type or becomes
// int8: 4 bits there cost more quality than they save time. A head's transform is bf16, or f32 if
// the head is; a short list has the type of the head. An adapter's matrices are f32 if the head is,
// bf16 if it is bf16 or f16, else int8.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "model/adapter_spec.hpp"
#include "model/backend.hpp"
#include "model/eagle_spec.hpp"
#include "model/kernels/cpu/isa.hpp"
#include "model/rows.hpp"
#include "model/weights/model_file.hpp"
#include "model/weights/packed_type.hpp"

namespace paceline {

enum class Dtype : std::uint8_t { Auto, F32, BF16, Int8, Q4 };

[[nodiscard]] std::optional<Dtype> parse_dtype(std::string_view text);
[[nodiscard]] std::string_view name(Dtype dtype);
[[nodiscard]] std::optional<KvType> parse_kv_type(std::string_view text);
[[nodiscard]] std::string_view name(KvType type);

enum class MatrixUse : std::uint8_t { Layer, Vocabulary };

[[nodiscard]] PackedType packed_type(StoredType stored, Dtype dtype, MatrixUse use);
/// The same of a tensor. One that is stored in blocks and has a LoRA merged counts as Q8_0.
[[nodiscard]] PackedType packed_type(const TensorView& tensor, Dtype dtype, MatrixUse use);

/// Whether all matrices of layers and head are F32 with `dtype`.
[[nodiscard]] bool all_floats(const ModelFile& file, Dtype dtype);
/// The type on a GPU of a matrix that a CPU packs to `type`: F16 is BF16 there, and so is F32
/// unless `floats`, which is all_floats() of its file.
[[nodiscard]] constexpr PackedType gpu_type(PackedType type, bool floats) {
    const bool rounded = type == PackedType::F16 || (type == PackedType::F32 && !floats);
    return rounded ? PackedType::BF16 : type;
}

struct CpuOptions {
    Dtype dtype = Dtype::Auto;
    KvType kv = KvType::F16;
    int first_layer = 0;
    int last_layer = -1;        // -1: all layers
    std::int32_t kv_slots = 0;  // rounded up to whole pages
    int rows_max = 256;         // rows computed at once; larger calls are cut into such chunks
    int threads = 1;
    std::vector<int> cores{};  // one per thread, to pin it to; empty: not pinned
    int usable_cores = 1;      // of its own, 0: shared; with fewer than threads no thread spins
    std::optional<Isa> isa{};  // nothing: the best this machine has
    bool final_head = false;   // norm and head also for a segment that does not end the model:
                               // a logit lens, or a draft made of the first layers
    std::vector<HeadSpec> heads{};          // HeadId 1, 2, ...: they need the head's weights too
    std::optional<AdapterSpec> adapter{};   // of an exit: Backend::run_adapter()
    std::optional<EagleSpec> eagle{};       // the layers are an EAGLE draft's: of whoever wraps the
                                            // backend (model/eagle), which does not read it
    std::optional<std::uint64_t> random{};  // seed of weights that the model has no bytes for
                                            // (model/weights/synthetic/synthetic_model.hpp)
    SublayerMask skipped{};  // sub-layers that every row skips: neither their weights nor their
                             // keys and values have a place
    std::function<void(double)> progress{};  // called on the caller's thread with 0 .. 1
};

/// What is wrong with `heads`, by field and value. Errors: BadArgument.
[[nodiscard]] Status check_heads(const ModelConfig& config, const std::vector<HeadSpec>& heads);

/// The same for an adapter.
[[nodiscard]] Status check_adapter(const ModelConfig& config, const AdapterSpec& adapter);

/// Bytes of packed weights of the segment that `options` describe, with all its heads and its
/// adapter, without packing anything. `options` have passed the checks of make_cpu_backend().
[[nodiscard]] std::uint64_t packed_bytes(const ModelFile& file, const CpuOptions& options);

/// The same for layers [first, last) of `file` with the embedding and head that they need.
[[nodiscard]] std::uint64_t packed_bytes(const ModelFile& file,
                                         Dtype dtype,
                                         int first_layer,
                                         int last_layer);

/// Bytes of the KV cache per slot for one layer.
[[nodiscard]] std::uint64_t kv_bytes_per_slot(const ModelConfig& config, KvType type);

}  // namespace paceline
