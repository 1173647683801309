// KernelTable: the CPU kernels of one instruction set, as plain functions.
//
// Every kernel is a pure function of its arguments; none allocates, locks or keeps state, so all
// may run on several threads at once over different outputs. Every kernel is row-invariant: what
// it computes for a row is a fixed sequence of operations on that row, whatever else is in the
// call. Reference implementations in plain loops: model/reference/.
#pragma once

#include <cstdint>

#include "model/kernels/cpu/activations.hpp"
#include "model/kernels/cpu/isa.hpp"
#include "model/kernels/cpu/packed_matrix.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

/// y[r][offset + o] (+)= sum over k of w[o][k] * x[r][k], outputs of tiles [first, last).
/// Order of sums: k ascending, in groups of 32 for quantised weights; one accumulator per output.
struct GemmArgs {
    const PackedMatrix* weights;
    const PackedRows* x;  // shaped for these weights
    float* const* y;      // [rows] pointers to output rows
    int y_offset;         // column of output 0
    bool accumulate;      // y += instead of y =
};

/// One KV page of one layer and one KV head:  keys [head_dim][32], values [32][head_dim].
struct KvPageView {
    std::uint8_t* keys;
    std::uint8_t* values;
};

/// Scaled dot-product attention of some queries over one split of the context.
/// For each query q: scores over positions [0, count[q]) of the split, their maximum, the sum of
/// exp(score - maximum), and the sum of exp(score - maximum) * value.
struct AttentionArgs {
    KvType type;
    int head_dim;
    int queries;                        // all share the pages below
    const float* const* q;              // [queries][head_dim], already scaled by 1/sqrt(head_dim)
    const int* count;                   // [queries] visible positions in this split, >= 0
    const std::uint8_t* const* keys;    // [pages of the split]
    const std::uint8_t* const* values;  // [pages of the split]
    float* scores;                      // scratch [queries][kSplit]
    float* const* out;  // [queries] -> [head_dim + 2]: weighted sum, maximum, sum of weights
};

inline constexpr int kSplit = 256;               // positions of one split of the context
inline constexpr int kAttentionQueriesMax = 64;  // of one attend() call
inline constexpr int kHeadDimMax = 512;

struct KernelTable {
    Isa isa;

    void (*gemm)(const GemmArgs& args, int first_tile, int last_tile);

    /// Packs columns of a row into their place in `to`; x[0] is column 0.
    void (*pack_row)(const float* x, Columns columns, const PackedRows& to, int row);
    /// 1 / sqrt(mean(x^2) + epsilon).
    float (*rms_scale)(const float* x, int cols, float epsilon);
    /// out[i] = x[i] * scale * weight[i]: with rms_scale(), RMS norm.
    void (*scale_by)(const float* x, const float* weight, float scale, int n, float* out);
    /// out[i] = silu(gate[i]) * up[i].
    void (*silu_mul)(const float* gate, const float* up, int n, float* out);
    /// Stores a key (after rope) and a value of head_dim numbers into lane `lane` of a page.
    void (*store_kv)(
        KvType type, const float* key, const float* value, int head_dim, KvPageView page, int lane);
    void (*attend)(const AttentionArgs& args);
    /// Adds a split's result to what the splits before it gave, both [head_dim + 2] as attend()
    /// writes them. Splits are merged in the order of their positions; the first one merges into
    /// an empty running result (all zeros, maximum -inf).
    void (*merge)(float* running, const float* part, int head_dim);
    /// out[d] = running[d] / sum of weights.
    void (*finish)(const float* running, int head_dim, float* out);
};

/// The kernels of `isa`; this machine must support it (isa.hpp).
[[nodiscard]] const KernelTable& kernels(Isa isa);

}  // namespace paceline
