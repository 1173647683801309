// CudaForward: one call's rows through their sub-layers, and hidden states through a head.
//
//   attention   qkv (norm as a factor) | rotate, keys and values | attention | merge | out +=
//               hidden
//   MLP         gate up, joined | down += hidden
//
// A product that ends a sub-layer also makes its rows ready for the next one, so a layer is six
// launches, one more where a row sees more than one split, two more in batches whose norms have
// kernels of their own, and up to three more where a file stores q, k and v, or gate and up, in
// different types. Sub-layers with the same active rows form a *stretch*: its tables are sent once,
// and a stretch of the whole segment is recorded as a graph for its size (GraphKey) and replayed
// from then on.
//
//   run():  rows ──> stretches ──> tables to the device ──> graph or launches ──> wait
//                                                              a cancelled call: rows = 0
//
// After the last stretch come, without a wait between, the head and the draws of the rows that
// something is drawn after; hidden states cross only where they are asked for.
//
// A call of run() is one batch: up to rows_max rows, so that a prefill reads the weights as seldom
// as can be, but no more than batch_rows() lets in, so that the memory of attention stays bounded.
// Batches of more than 64 rows are not recorded: a graph would save little compared with their
// products.
//
// Hidden states come from the host or from the device, and go where the caller wants them: the
// recordings work in the workspace alone, so they are copied into it and out of it.
//
// On several devices each computes its part of every step and puts what all need into the memory of
// all: the mixed heads, the inner states of an MLP, and the input of the next product with its
// squares (CudaPart; cuda_group.cpp). So a device waits for all others four times a layer. A device
// has its own columns of the hidden states; the first gets all of them at the end of a stretch, and
// all of the logits. The streams of the others begin and end with the first one's, and a recording
// of it is one of all.
//
// Borrows the ranks, whose workspaces it makes; owns the tables. One call at a time, from one
// thread.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/backend.hpp"
#include "model/cuda/batch_tables.hpp"
#include "model/cuda/cuda_rank.hpp"
#include "model/device_sampler.hpp"
#include "model/kernels/cuda/attention.hpp"
#include "model/kernels/cuda/blas.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "model/kernels/cuda/sampling/sample.hpp"
#include "model/kv_layers.hpp"

namespace paceline {

/// The cancel token of a call, and the call's rows that are in this batch.
struct CudaWatch {
    const CancelToken* cancel = nullptr;
    std::size_t first_row = 0;
    std::size_t rows = 0;

    [[nodiscard]] bool cancelled() const { return cancel != nullptr && cancel->cancelled(); }
    /// Asked before cancelled(): the watch of a call without a living row raises its token.
    [[nodiscard]] bool all_stale() const;
};

/// Hidden states [rows, dim] of a batch. `in` is read if not all rows begin at sub-layer 0; where
/// `out` is empty they stay in the workspace.
struct CudaStates {
    ConstHiddenRows in = {};
    HiddenRows out = {};
};

/// What is drawn after the rows of a batch: a token each, or candidates if these are not empty.
struct CudaDraws {
    const CudaHead* head = nullptr;
    std::span<const DrawJob> jobs = {};  // one for each row; those without params have none
    std::span<std::optional<TokenId>> tokens = {};
    std::span<std::vector<Candidate>> best = {};

    /// The rows with a job.
    [[nodiscard]] std::vector<int> asked() const;
};

/// Number of batches whose hidden states callers can keep on the device: a segment's run, the rows
/// that its exit evaluates, and the output of its adapter. More memory is allocated on demand.
inline constexpr int kKeptBatches = 3;

/// Whether a row runs a sub-layer: within its [first, last) and not skipped.
[[nodiscard]] bool runs(const Row& row, int sublayer);

class CudaForward {
public:
    /// Bytes that make() takes of the device that has `part`, and of pinned memory. `splits_gates`:
    /// CudaWeights::splits_gates().
    static std::uint64_t workspace_bytes(const ModelConfig& config,
                                         const CudaOptions& options,
                                         const CudaPart& part,
                                         bool splits_gates);
    static std::uint64_t pinned_bytes(const ModelConfig& config, const CudaOptions& options);
    /// Keys that a row can see, in whole splits of attention: positions are below it.
    static int context_of(const ModelConfig& config, const CudaOptions& options);

    /// `ranks` are one or several, whose devices reach each other; with weights and caches when the
    /// first call comes.
    CudaForward(const ModelConfig& config,
                const CudaOptions& options,
                std::span<const std::unique_ptr<CudaRank>> ranks);
    CudaForward(const CudaForward&) = delete;
    CudaForward& operator=(const CudaForward&) = delete;
    ~CudaForward() = default;
    struct Made {
        bool pinned = false;              // there was memory of the host
        const CudaRank* lacks = nullptr;  // the device that had too little; nullptr: none
    };
    [[nodiscard]] Made make(const CudaOptions& options);

    /// How many of `rows`, from the first on, go in one batch; at least 64 if rows_max and `rows`
    /// are.
    [[nodiscard]] std::size_t batch_rows(std::span<const Row> rows) const;
    /// The most rows of a call of head(), draw() or draw_candidates(): logits are large.
    [[nodiscard]] int head_rows() const { return std::min(limits_.rows, cuda::kBatchRows); }

    /// Rows of one batch through their sub-layers, and what is drawn after them.
    RunOutcome run(std::span<const Row> rows,
                   const CudaStates& states,
                   const CudaDraws& draws,
                   const CudaWatch& watch);
    /// The adapter's x of each row of a batch.
    RunOutcome run_adapter(std::span<const Row> rows,
                           const CudaStates& states,
                           const CancelToken* cancel);
    /// Backend::gather() and copy(), and memory for `rows` rows (cuda_rows.cpp).
    void gather(std::span<const RowSource> rows, HiddenRows to);
    void copy(ConstHiddenRows from, HiddenRows to);
    [[nodiscard]] RowMemory make_rows(std::size_t rows);
    /// Logits [rows, head.output.outputs] of at most head_rows() hidden states.
    void head(const CudaHead& head, ConstHiddenRows hidden, int rows, float* logits);
    /// CudaBackend::batch_seconds().
    double batch_seconds(std::span<const Row> rows, int times);
    /// What is drawn from hidden states that are given: at most head_rows() of them, each with a
    /// job.
    void draw(ConstHiddenRows hidden, const CudaDraws& draws);
    /// Bytes of one slot's keys and values, and the bytes themselves (cuda_pages.cpp).
    [[nodiscard]] std::size_t kv_bytes() const;
    void read_kv(KvSlot slot, KvBytes bytes);
    void write_kv(KvSlot slot, ConstKvBytes bytes);

private:
    /// Sub-layers [first, last) with the same active rows.
    struct Stretch {
        int first;
        int last;
        std::vector<int> rows;
    };
    struct Recorded {
        bool ran = false;
        cuda::Graph graph;
    };
    /// What the launches of a recording depend on; it is always of the whole segment.
    struct GraphKey {
        int rows;  // of its grids
        bool one_split;
        int attention_tiles;
        [[nodiscard]] auto operator<=>(const GraphKey&) const = default;
    };

    [[nodiscard]] std::vector<Stretch> stretches_of(std::span<const Row> rows) const;
    /// 0, 1, .. count - 1.
    [[nodiscard]] static std::vector<int> all_of(std::size_t count);
    void send(std::span<const Row> rows, ActiveRows active, int heads, int kv_heads);
    void run_and_keep(std::span<const Row> rows,
                      const Stretch& stretch,
                      bool embeds,
                      const CancelToken* cancel);
    void replay(const Stretch& stretch, bool embeds);
    void launch_stretch(const Stretch& stretch, bool embeds);
    void embed();
    // Of a group of devices; nothing on one (cuda_group.cpp).
    template <class Work>
    void on_each(const Work& work);
    void fork();
    void join();
    void barrier();
    void finish_all();
    void share(const CudaRank& rank,
               void* CudaWorkspace::*buffer,
               int first_column,
               cuda::NextInput& next) const;
    [[nodiscard]] RunOutcome finish_run(HiddenRows out,
                                        const CudaDraws& draws,
                                        const CudaWatch& watch);
    [[nodiscard]] std::span<const int> head_group(std::span<const int> asked,
                                                  std::size_t first) const;
    void give_hidden(ConstHiddenRows hidden);
    void send_out(HiddenRows out);
    void take_out(HiddenRows out) const;
    void gather_batch(std::span<const RowSource> rows, HiddenRows to);
    void put_in_stream(std::span<const RowSource> rows, std::size_t first, HiddenRows to);
    void send_head_rows(std::span<const int> rows);
    void launch_head(const CudaHead& head, int rows);
    void send_draws(const CudaDraws& draws, std::span<const int> rows);
    void launch_draws(const CudaDraws& draws, std::span<const int> rows);
    void take_drawn(const CudaDraws& draws, std::span<const int> rows) const;
    [[nodiscard]] static std::uint64_t head_table_bytes(int rows);
    [[nodiscard]] static std::uint64_t draw_staging_bytes(const BatchLimits& limits);
    [[nodiscard]] std::int32_t* head_table() const;
    void stop_head(CudaRank& rank) const;
    /// Pieces of a slot that follow one another in its bytes, in the memory of one device.
    struct KvRun {
        CudaRank* rank;
        std::byte* at;
        cuda::Pieces pieces;
    };
    [[nodiscard]] std::vector<KvRun> kv_runs(KvSlot slot) const;
    template <class Copy, class Turn>
    void in_turns(std::vector<KvRun> runs, const Copy& copy, const Turn& turn);
    // What follows is launched for one device.
    void multiply(CudaRank& rank, const cuda::GemmArgs& product);
    void launch_mix(CudaRank& rank, const CudaAttention& of, const CudaCache& cache, int layer);
    void launch_residual(CudaRank& rank,
                         const cuda::DeviceMatrix& weights,
                         const void* x,
                         const cuda::NextInput& next);
    void launch_sublayer(int sublayer, int following);
    void launch_gates(CudaRank& rank, const CudaLayer& layer);
    void launch_turn(CudaRank& rank, const CudaHead& head, int rows);
    void launch_block(CudaRank& rank, const CudaHead& head, int rows);
    void launch_output(CudaRank& rank, const CudaHead& head, int rows);
    void launch_rotate(CudaRank& rank, const CudaAttention& of, const CudaCache& cache, int layer);
    [[nodiscard]] cuda::NextInput input_for(const CudaRank& rank,
                                            const float* norm,
                                            const cuda::DeviceMatrix& product) const;
    [[nodiscard]] cuda::NextInput input_of_sublayer(const CudaRank& rank, int sublayer) const;
    void launch_ready(CudaRank& rank,
                      const std::int32_t* row_index,
                      const std::int32_t* count,
                      const cuda::NextInput& input,
                      int rows);
    [[nodiscard]] cuda::GemmArgs product(const CudaRank& rank,
                                         const cuda::DeviceMatrix& weights,
                                         const void* x,
                                         int x_stride,
                                         bool normed) const;
    enum class Waited { Done, Cancelled, Dead };
    [[nodiscard]] Waited wait(const CudaWatch& watch);
    [[nodiscard]] static bool beginnings_are_kept(std::span<const Row> rows);
    void keep_beginnings(std::span<const Row> rows);
    void keep_skipped(std::span<const Row> rows) const;
    void keep_stacks(std::span<const Row> rows, const Stretch& stretch, int sublayer);
    [[nodiscard]] bool wants_stacks(std::span<const Row> rows, const Stretch& stretch) const;

    /// Of batches: see cuda_workspace.cpp.
    static BatchLimits limits_of(const ModelConfig& config, const CudaOptions& options);
    static std::uint64_t place(const ModelConfig& config,
                               const CudaOptions& options,
                               const CudaPart& part,
                               bool splits_gates,
                               std::byte* base,
                               CudaWorkspace& to);
    [[nodiscard]] bool make_rank(CudaRank& rank, const CudaOptions& options);

    const ModelConfig& config_;
    std::span<const std::unique_ptr<CudaRank>> ranks_;
    // Of the first device, where calls begin and end.
    CudaRank& first_;
    cuda::Stream& stream_;
    CudaWorkspace& at_;
    int first_layer_;
    int last_layer_;
    SublayerMask skipped_;
    KvLayers kv_layers_;
    BatchLimits limits_;
    bool graphs_on_;
    RopeTable rope_;
    cuda::PinnedMemory pinned_;       // hidden states or logits on their way
    cuda::PinnedMemory draw_pinned_;  // a head's table (head_table()), and what was drawn after it
    std::size_t kept_rows_ = 0;       // of at_.kept that are given
    std::unique_ptr<cuda::Blas> blas_;  // exact = off alone
    BatchTables tables_;
    int rows_now_ = 0;             // of the stretch that is being launched: those of its grids
    int unit_rows_now_ = 1;        // of its attention units
    int attention_tiles_now_ = 1;  // of queries, that these units need
    bool one_split_now_ = false;
    // Whether hidden states go to the first device too: after the last sub-layer of a stretch.
    bool gathers_now_ = false;
    std::map<GraphKey, Recorded> recorded_;
};

template <class Work>
void CudaForward::on_each(const Work& work) {
    for (const std::unique_ptr<CudaRank>& rank : ranks_) {
        if (ranks_.size() > 1) cuda::set_device(rank->device);
        work(*rank);
    }
}

}  // namespace paceline
