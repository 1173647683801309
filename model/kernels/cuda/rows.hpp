// What happens to rows between products: embedding, making ready, rotation, keys and values.
//
// One block a row (or a row and a head, or a warp a row); a row's bits depend on that row alone.
// Plain structs of device pointers; the caller owns all memory. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/kernels/cuda/gemm/gemm.hpp"

namespace paceline::cuda {

/// How the embedding's numbers are stored; records are those of gemm/gemm_records.hpp.
struct EmbedArgs {
    DeviceMatrix table;                    // [vocab][dim], or some of its rows
    const std::int32_t* tokens = nullptr;  // of each row; negative: its hidden state is given
    const std::int32_t* rows = nullptr;
    float* hidden = nullptr;  // [rows][dim]
    int first_token = 0;      // of the table's first row; rows with tokens that it has not stay
    // As many places in the memory of other devices, which get the same as `hidden`.
    int others = 0;
    float* other_hidden[kOthersMax] = {};
};
/// hidden[row] = the embedding of its token.
void launch_embed(Stream& stream, const EmbedArgs& args, int rows_max);

struct ReadyArgs {
    const float* hidden = nullptr;            // [call's rows][dim]
    const std::int32_t* row_index = nullptr;  // the place of each row in `hidden`
    const std::int32_t* rows = nullptr;
    int dim = 0;
    NextInput next;
    int columns = 0;  // of these rows that are made ready, from the first on; 0: all
};
/// Makes rows ready for a product, as the Residual finish of the product before would have.
void launch_ready(Stream& stream, const ReadyArgs& args, int rows_max);

/// A residual block between the product T n and the head's: its input is n + SiLU(T n).
struct AddSiluArgs {
    const float* hidden = nullptr;            // [call's rows][dim]
    const std::int32_t* row_index = nullptr;  // the place of each row in `hidden`
    const std::int32_t* rows = nullptr;
    int dim = 0;
    const float* weights = nullptr;  // of the norm: n = hidden x weights x its factor
    RowNorm norm;
    const float* turned = nullptr;  // [rows][dim]: T n
    NextInput next;                 // without weights and squares
    int columns = 0;                // of these rows that are made, from the first on; 0: all
};
void launch_add_silu(Stream& stream, const AddSiluArgs& args, int rows_max);

struct NormFactorsArgs {
    RowNorm norm;
    const std::int32_t* rows = nullptr;
    float* factors = nullptr;  // [rows]
};
/// The factor 1 / rms of each row, once for all blocks of a product (RowNorm::factors).
void launch_norm_factors(Stream& stream, const NormFactorsArgs& args, int rows_max);

/// Which two dimensions of a head rotate together (model/config.hpp: RopePairing).
enum class Pairing : std::uint8_t { Adjacent, Halves };
/// How keys and values are stored (model/kv_layout.hpp: KvType).
enum class CacheType : std::uint8_t { F32, F16, BF16 };

struct RotateArgs {
    float* qkv = nullptr;  // [rows][qkv_stride]: heads of q, of k, of v; q is rotated in place
    int qkv_stride = 0;
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int pairs = 0;  // rotated pairs of a head; what is after them stays
    Pairing pairing = Pairing::Adjacent;
    const float* bias = nullptr;    // [q + k + v]; nullptr: none
    const float* q_norm = nullptr;  // [head_dim]; nullptr: none
    const float* k_norm = nullptr;
    float epsilon = 0.0f;                     // of these norms
    const float* cosines = nullptr;           // [positions][pairs]
    const float* sines = nullptr;             // [positions][pairs]
    const std::int32_t* positions = nullptr;  // of each row
    const std::int32_t* slots = nullptr;      // of each row
    const std::int32_t* rows = nullptr;
    // Keys and values of the layer: page -> layer -> head -> keys [32][head_dim], values the same.
    std::byte* cache = nullptr;
    CacheType type = CacheType::BF16;
    int layers = 0;  // of the cache
    int layer = 0;   // this one, from 0
};
/// Bias, norm per head and rotation of queries and keys; keys and values into their slots.
void launch_rotate(Stream& stream, const RotateArgs& args, int rows_max);

/// Slots of a page (model/kv_layout.hpp).
inline constexpr int kPageSlots = 32;
[[nodiscard]] constexpr std::size_t cache_element_bytes(CacheType type) {
    return type == CacheType::F32 ? 4 : 2;
}

}  // namespace paceline::cuda
