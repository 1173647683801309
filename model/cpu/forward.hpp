// Forward: runs the sub-layers of one call on all threads.
//
// run() is called by every thread of the team with its number; all threads execute the same steps
// and synchronise at barriers. Memory that a thread writes between two barriers is not used by
// others.
//
// Rows may become stale during a call (CancelToken::rows()): at the start of a sub-layer thread 0
// checks them, and makes a second plan without the stale rows; after the barrier at the end of the
// sub-layer all threads switch to it.
//
// Borrows weights, KV store, kernels and team; owns the buffers between the steps, sized once.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "model/cpu/cpu_weights.hpp"
#include "model/cpu/forward_plan.hpp"
#include "model/cpu/kv_store.hpp"
#include "model/kernels/cpu/activations.hpp"
#include "model/kernels/cpu/kernel_table.hpp"
#include "model/kernels/cpu/thread_team.hpp"
#include "model/rope_table.hpp"

namespace paceline {

/// Memory for the inputs of matrix products in the rounding each kind of weights wants.
struct ActivationSet {
    Activations by_type[3];  // F32, BF16, Int8: only the kinds some weights need have memory
};

/// Inputs packed in one or more of these roundings.
struct PackedInputs {
    PackedRows by_type[3];
    [[nodiscard]] const PackedRows& of(PackedType weights) const {
        return by_type[static_cast<std::size_t>(activation_for(weights))];
    }
};

/// Where logits go: [rows, width]. A head with a short list has its own length as width, or the
/// vocabulary's: then all other tokens get -inf.
struct Logits {
    float* data;
    int width;
};

class Forward {
public:
    Forward(const ModelConfig& config,
            const CpuWeights& weights,
            const KernelTable& kernels,
            KvStore& kv,
            ThreadTeam& team,
            int first_layer,
            int last_layer,
            int rows_max);
    ~Forward();
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

    /// Rows through their sub-layers; `hidden` is [rows, dim], at most rows_max of them. The
    /// token's RowWatch knows rows[0] as `first_row`.
    RunOutcome run(std::span<const Row> rows,
                   float* hidden,
                   const CancelToken* cancel,
                   std::size_t first_row);
    /// Norm and head for `rows` hidden states, at most rows_max of them.
    void head(const float* hidden, int rows, float* logits);
    /// The same for a head beside the final one.
    void head(const CpuHead& head, const float* hidden, int rows, Logits logits);
    double gemm_only_seconds(int rows);
    [[nodiscard]] std::uint64_t workspace_bytes() const;

private:
    struct Scratch;  // what one thread needs for itself
    static constexpr int kNever = 1 << 30;
    static constexpr int kSetRowsMax = 8;
    static constexpr int kSplitRowsMax = 16;
    static constexpr int kPrivateRowsMax =
        2;  // up to this many rows, every thread packs all itself

    void walk(int thread);
    [[nodiscard]] bool mark_deaths();
    void make_plan(ForwardPlan& plan);
    void point_at_rows(Logits logits, int rows);
    void attention(int thread, int layer, const RowGroup& group);
    void mlp(int thread, int layer, const RowGroup& group);
    void keep_stacks(int thread, int sublayer, const RowGroup* group);
    void embed(int thread);

    template <class Produce>
    PackedInputs pack_rows(int thread, int rows, int cols, unsigned types, Produce produce);
    /// RMS norm of the given columns of x[dim]; the mean is over all of them.
    void norm_columns(const float* x,
                      const std::vector<float>& weight,
                      Columns columns,
                      float* out) const {
        const float scale = kernels_.rms_scale(x, config_.dim, config_.norm_epsilon);
        kernels_.scale_by(x + columns.first, weight.data() + columns.first, scale,
                          columns.last - columns.first, out + columns.first);
    }
    /// out += SiLU(turned), of the given columns.
    void add_silu(const float* turned, Columns columns, float* out) const;
    void multiply(int thread,
                  const PackedMatrix& weights,
                  const PackedInputs& x,
                  float* const* y,
                  bool accumulate);
    void gather_heads(int thread, const RowGroup& group, int r, Columns columns, float* out);
    void rotate_and_store(int thread, int layer, const RowGroup& group);
    void rotate_head(float* head,
                     const float* norm,
                     const float* cosines,
                     const float* sines) const;
    void attend_unit(int thread, int layer, const RowGroup& group, const AttentionUnit& unit);
    void attend_split(int thread,
                      int layer,
                      const RowGroup& group,
                      const AttentionUnit& unit,
                      int split,
                      float* const* out);
    void attend_rows(int thread,
                     int layer,
                     const RowGroup& group,
                     const AttentionUnit& unit,
                     int split,
                     int first,
                     int count,
                     float* const* out);
    [[nodiscard]] float* part(int row, int head, int split) {
        return parts_.data() +
               ((static_cast<std::ptrdiff_t>(row) * config_.heads + head) * splits_max_ + split) *
                   part_stride();
    }
    [[nodiscard]] std::ptrdiff_t part_stride() const { return config_.head_dim + 2; }
    [[nodiscard]] int queries_per_kv() const { return config_.heads / config_.kv_heads; }

    const ModelConfig& config_;
    const CpuWeights& weights_;
    const KernelTable& kernels_;
    KvStore& kv_;
    ThreadTeam& team_;
    int first_layer_;
    int last_layer_;
    int rows_max_;
    int splits_max_;
    RopeTable rope_;

    // One call.
    std::span<const Row> rows_;
    float* hidden_ = nullptr;
    const CancelToken* cancel_ = nullptr;
    std::atomic<int> stop_after_{kNever};  // the sub-layer after which all stop
    const CancelToken::RowWatch* watch_ = nullptr;
    std::size_t first_row_ = 0;
    std::vector<std::uint8_t> stale_;                 // [rows], thread 0's
    ForwardPlan plans_[2];                            // the one in use and the next one
    std::unique_ptr<std::atomic<bool>[]> replanned_;  // per sub-layer: all change over after it
    PageMap pages_;
    std::vector<float> cosines_, sines_;             // [rows][pairs]
    std::unique_ptr<std::atomic<int>[]> next_unit_;  // per sub-layer: attention work handed out

    // Buffers between steps; row a of a group uses place a.
    ActivationSet shared_;
    std::vector<std::unique_ptr<Scratch>> scratch_;      // per thread
    AlignedArray<float> q_, k_, v_, mixed_, gate_, up_;  // [rows_max][...]
    std::vector<float*> q_rows_, k_rows_, v_rows_, gate_rows_, up_rows_, logits_rows_;
    AlignedArray<float> turned_;  // [rows_max][dim]: T h, if any head has a T
    std::vector<float*> turned_rows_;
    AlignedArray<float> parts_;  // [kSplitRowsMax][heads][splits][head_dim + 2]
};

}  // namespace paceline
