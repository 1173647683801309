// CpuWeights: the packed weights of one segment.
//
// Owns one HugeArena that holds every packed matrix in the order of use in a pass.
// Immutable after load(); read by all threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/cpu/stretches.hpp"
#include "model/kernels/cpu/huge_arena.hpp"
#include "model/kernels/cpu/packed_matrix.hpp"
#include "model/kernels/cpu/thread_team.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct CpuLayer {
    PackedMatrix q, k, v, attn_out, gate, up, down;
    std::vector<float> attn_norm, ffn_norm;
    std::vector<float> q_bias, k_bias, v_bias;  // empty: none
    std::vector<float> q_norm, k_norm;          // empty: none
};

/// A head beside the final one (HeadSpec).
struct CpuHead {
    PackedMatrix transform;       // [dim, dim]; no rows: the identity
    PackedMatrix output;          // [tokens, dim]; all of the head's rows if there is no short list
    std::vector<TokenId> tokens;  // ascending; empty: the whole vocabulary
    bool norm_first = true;
    HeadBlock block = HeadBlock::Linear;
};

/// Layer 0 would be one whose rows are embedded first.
inline constexpr int kAdapterLayer = 1;

class CpuWeights {
public:
    /// The types and shapes of everything a segment packs; `data` pointers are null.
    static CpuWeights plan(const ModelFile& file, const CpuOptions& options);

    /// Plans, reserves and packs with all threads of `team`. Pages of the file are released as
    /// they are consumed, so that the peak is the packed size plus one stretch of a
    /// tensor (stretches.hpp).
    /// Errors: OutOfMemory; BadFile when a weight, a scale of a block or a norm is not finite, or
    /// when the weights are synthetic and `options` have no seed.
    static Result<CpuWeights> load(const ModelFile& file,
                                   const CpuOptions& options,
                                   ThreadTeam& team);

    /// An adapter as the weights of a segment of its own: the attention of kAdapterLayer, and one
    /// head after out_norm. `whole`: the packed head of the segment, for an adapter without a
    /// short list. Errors as those of load(); the spec has been checked.
    static CpuWeights plan_adapter(const ModelFile& file, const CpuOptions& options);
    static Result<CpuWeights> load_adapter(const ModelFile& file,
                                           const CpuOptions& options,
                                           const PackedMatrix& whole,
                                           ThreadTeam& team);

    [[nodiscard]] std::uint64_t packed_bytes() const;
    [[nodiscard]] const CpuLayer& layer(int index) const {
        return layers_[static_cast<std::size_t>(index - first_layer_)];
    }
    [[nodiscard]] const PackedMatrix& embedding() const {
        return embedding_;
    }  // if first_layer is 0
    /// If the segment ends the model, or one of its heads wants the whole vocabulary.
    [[nodiscard]] const PackedMatrix& head() const { return head_; }
    [[nodiscard]] const std::vector<CpuHead>& heads() const { return heads_; }
    [[nodiscard]] const std::vector<float>& output_norm() const { return output_norm_; }

private:
    [[nodiscard]] std::vector<WeightSource> sources(const ModelFile& file);
    [[nodiscard]] std::uint64_t pass_bytes() const;
    void choose_cache();
    void plan_heads(const ModelFile& file, const CpuOptions& options);
    Status pack_file(const ModelFile& file, const CpuOptions& options, ThreadTeam& team);
    void pack(const Stretch& stretch, ThreadTeam& team);
    void pack(const TensorView& tensor, PackedMatrix& matrix, ThreadTeam& team);
    void pack(const std::vector<float>& values, PackedMatrix& matrix, ThreadTeam& team);
    void make_up(const TensorView& tensor,
                 std::span<const TokenId> list,
                 PackedMatrix& matrix,
                 ThreadTeam& team);
    void pack_list(const TensorView& all, CpuHead& head, ThreadTeam& team);
    void pack_heads(const ModelFile& file, const CpuOptions& options, ThreadTeam& team);
    [[nodiscard]] Status check_numbers(const ModelFile& file) const;
    Status read_vectors(const ModelFile& file);

    HugeArena arena_;
    std::string wrong_;         // what pack() found in a matrix; load() reports it
    std::uint64_t random_ = 0;  // seed of the synthetic weights
    std::vector<CpuLayer> layers_;
    PackedMatrix embedding_;
    PackedMatrix head_;  // the embedding itself when tied and both are here
    std::vector<float> output_norm_;
    std::vector<CpuHead> heads_;
    int first_layer_ = 0;
    int last_layer_ = 0;
    bool has_embedding_ = false;
    bool has_head_ = false;  // packed whole
    bool has_norm_ = false;
    bool head_is_embedding_ = false;
};

}  // namespace paceline
