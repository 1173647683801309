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
// Borrows weights and cache; owns workspace and tables. One call at a time, from one thread.
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
#include "model/cuda/cuda_weights.hpp"
#include "model/cuda/rotation_table.hpp"
#include "model/device_sampler.hpp"
#include "model/kernels/cuda/attention.hpp"
#include "model/kernels/cuda/blas.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "model/kernels/cuda/sampling/sample.hpp"
#include "model/kv_layers.hpp"

namespace paceline {

/// Keys and values of some layers, in pages (model/kernels/cuda/attention.hpp).
struct CudaCache {
    cuda::DeviceMemory memory;
    cuda::CacheType type = cuda::CacheType::BF16;
    int layers = 0;
    int kv_heads = 0;
    int head_dim = 0;
    std::int32_t slots = 0;

    static std::uint64_t bytes_of(
        KvType type, int layers, int kv_heads, int head_dim, std::int32_t slots);
    /// Zeroed. False if there is not so much memory.
    static bool make(KvType type,
                     int layers,
                     int kv_heads,
                     int head_dim,
                     std::int32_t slots,
                     cuda::Stream& stream,
                     CudaCache& to);
};

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
    /// Bytes that make() takes of the device, and of pinned memory. `splits_gates`:
    /// CudaWeights::splits_gates().
    static std::uint64_t workspace_bytes(const ModelConfig& config,
                                         const CudaOptions& options,
                                         bool splits_gates);
    static std::uint64_t pinned_bytes(const ModelConfig& config, const CudaOptions& options);
    /// Keys that a row can see, in whole splits of attention: positions are below it.
    static int context_of(const ModelConfig& config, const CudaOptions& options);

    CudaForward(const ModelConfig& config,
                const CudaOptions& options,
                const CudaWeights& weights,
                CudaCache& cache,
                CudaCache* adapter_cache,
                const cuda::DeviceInfo& device);
    CudaForward(const CudaForward&) = delete;
    CudaForward& operator=(const CudaForward&) = delete;
    ~CudaForward() = default;
    enum class Made : std::uint8_t { All, NoDeviceMemory, NoPinnedMemory };
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
    [[nodiscard]] cuda::Stream& stream() { return stream_; }

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
    cuda::GemmArgs residual_block(const CudaHead& head, int rows);
    void send_draws(const CudaDraws& draws, std::span<const int> rows);
    void launch_draws(const CudaDraws& draws, std::span<const int> rows);
    void take_drawn(const CudaDraws& draws, std::span<const int> rows) const;
    [[nodiscard]] static std::uint64_t head_table_bytes(int rows);
    [[nodiscard]] static std::uint64_t draw_staging_bytes(const BatchLimits& limits);
    [[nodiscard]] std::int32_t* head_table() const;
    void stop_head();
    [[nodiscard]] cuda::Pieces kv_pieces() const;
    [[nodiscard]] std::byte* kv_at(KvSlot slot) const;
    void multiply(const cuda::GemmArgs& product);
    void attention(const CudaAttention& of,
                   CudaCache& cache,
                   int layer,
                   const cuda::NextInput& next);
    void mlp(const CudaLayer& layer, const cuda::NextInput& next);
    void ready(const float* norm, const cuda::DeviceMatrix& product);
    [[nodiscard]] cuda::NextInput input_for(const float* norm,
                                            const cuda::DeviceMatrix& product) const;
    [[nodiscard]] cuda::NextInput input_of_sublayer(int sublayer) const;
    [[nodiscard]] cuda::GemmArgs product(const cuda::DeviceMatrix& weights,
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

    /// What rows need between two kernels.
    struct Workspace {
        // Of a batch's rows, up to rows_max.
        float* hidden = nullptr;   // [rows][dim]
        float* kept = nullptr;     // [kKeptBatches * rows][dim]: what make_rows() gives
        void* input = nullptr;     // [rows][padded dim]: of q k v, gate up, heads
        float* squares = nullptr;  // [rows][tiles]
        float* factors = nullptr;  // [rows]: what norms are, made of the squares
        float* qkv = nullptr;      // [rows][q + k + v]
        void* mixed = nullptr;     // [rows][padded q]: of attention's out
        void* gated = nullptr;     // [rows][padded ffn]: of down
        float* gates = nullptr;    // [rows][ffn]; if a layer has gate and up as two products
        float* partials = nullptr;
        std::byte* blas = nullptr;  // exact = off alone: what cuBLAS works in, and its products
        float* products = nullptr;  // [rows][gate + up, or dim]
        // Of a head's rows, up to head_rows().
        void* turned = nullptr;             // [rows][padded dim]: after the head's transform
        float* block = nullptr;             // [rows][dim]: T n, if a head has a residual block
        float* logits = nullptr;            // [rows][vocab]
        cuda::DrawRow* draws = nullptr;     // [rows], with their scratch and what was drawn
        std::int32_t* head_rows = nullptr;  // after the draws: how many, which of `hidden`
        std::byte* draw_scratch = nullptr;
        std::int32_t* tokens = nullptr;
        cuda::CandidateList* lists = nullptr;
    };
    /// Of batches: see cuda_workspace.cpp.
    static BatchLimits limits_of(const ModelConfig& config, const CudaOptions& options);
    static std::uint64_t place(const ModelConfig& config,
                               const CudaOptions& options,
                               bool splits_gates,
                               std::byte* base,
                               Workspace& to);

    const ModelConfig& config_;
    const CudaWeights& weights_;
    CudaCache& cache_;
    CudaCache* adapter_cache_;
    int first_layer_;
    int last_layer_;
    SublayerMask skipped_;
    KvLayers kv_layers_;
    BatchLimits limits_;
    int processors_;
    bool wgmma_;  // cuda::has_wgmma()
    bool graphs_on_;
    RopeTable rope_;
    cuda::Stream stream_;
    cuda::Stream urgent_;
    cuda::DeviceMemory memory_;
    cuda::PinnedMemory pinned_;       // hidden states or logits on their way
    cuda::PinnedMemory draw_pinned_;  // a head's table (head_table()), and what was drawn after it
    Workspace at_;
    std::size_t kept_rows_ = 0;         // of at_.kept that are given
    std::unique_ptr<cuda::Blas> blas_;  // exact = off alone
    BatchTables tables_;
    RotationTable angles_;
    int rows_now_ = 0;             // of the stretch that is being launched: those of its grids
    int unit_rows_now_ = 1;        // of its attention units
    int attention_tiles_now_ = 1;  // of queries, that these units need
    bool one_split_now_ = false;
    std::map<GraphKey, Recorded> recorded_;
};

}  // namespace paceline
