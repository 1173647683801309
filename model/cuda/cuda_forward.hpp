// CudaForward: one call's rows through their sub-layers, and hidden states through a head.
//
//   attention   qkv (norm as a factor) | rotate, keys and values | attention | merge | out += hidden
//   MLP         gate up, joined | down += hidden
//
// A product that ends a sub-layer also makes its rows ready for the next one, so a layer is six
// launches, seven where a row sees more than one split. Sub-layers with the same active rows form a *stretch*: its tables are sent once, and a
// stretch of the whole segment is recorded as a graph for its size and replayed from then on.
//
//   run():  rows ──> stretches ──> tables to the device ──> graph or launches ──> wait
//                                                              a cancelled call: rows = 0
//
// Borrows weights and cache; owns workspace and tables. One call at a time, from one thread.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "model/backend.hpp"
#include "model/cuda/cuda_weights.hpp"
#include "model/cuda/wave_tables.hpp"
#include "model/kernels/cuda/attention.hpp"
#include "model/kernels/cuda/runtime.hpp"
#include "model/kernels/cuda/sample.hpp"

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

/// Whether a row runs a sub-layer: within its [first, last) and not skipped.
[[nodiscard]] bool runs(const Row& row, int sublayer);

class CudaForward {
public:
    /// Bytes that make() takes.
    static std::uint64_t workspace_bytes(const ModelConfig& config, const CudaOptions& options);
    /// Keys that a row can see, in whole splits of attention: positions are below it.
    static int context_of(const ModelConfig& config, const CudaOptions& options);

    CudaForward(const ModelConfig& config,
                const CudaOptions& options,
                const CudaWeights& weights,
                CudaCache& cache,
                CudaCache* adapter_cache,
                int processors);
    CudaForward(const CudaForward&) = delete;
    CudaForward& operator=(const CudaForward&) = delete;
    ~CudaForward() = default;
    /// False if there is not so much memory.
    [[nodiscard]] bool make(const CudaOptions& options);

    /// Rows through their sub-layers; `hidden` is [rows, dim], at most rows_max of them.
    RunOutcome run(std::span<const Row> rows, float* hidden, const CancelToken* cancel);
    /// The adapter's x of each row.
    RunOutcome run_adapter(std::span<const Row> rows,
                           const float* hidden,
                           float* out,
                           const CancelToken* cancel);
    /// Logits [rows, head.output.outputs] of at most rows_max hidden states.
    void head(const CudaHead& head, const float* hidden, int rows, float* logits);
    /// CudaBackend::wave_seconds().
    double wave_seconds(std::span<const Row> rows, int times);
    /// The token of each hidden state; only ids come back. `jobs` are at most rows_max.
    void draw(const CudaHead& head,
              const float* hidden,
              std::span<const DrawJob> jobs,
              std::span<std::optional<TokenId>> tokens);
    /// The best of each hidden state's race, as candidates() has them.
    void draw_candidates(const CudaHead& head,
                         const float* hidden,
                         std::span<const DrawJob> jobs,
                         std::span<std::vector<Candidate>> best);
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
    using GraphKey = std::tuple<int, int, int, bool>;  // first, last, rows, one split

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
    void launch_head(const CudaHead& head, const float* hidden, int rows);
    cuda::DrawInput launch_jobs(const CudaHead& head,
                                const float* hidden,
                                std::span<const DrawJob> jobs,
                                cuda::DrawNeeds& needs);
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
    [[nodiscard]] bool wait(const CancelToken* cancel);
    [[nodiscard]] static bool beginnings_are_kept(std::span<const Row> rows);
    void keep_beginnings(std::span<const Row> rows);
    void keep_skipped(std::span<const Row> rows) const;
    void keep_stacks(std::span<const Row> rows, const Stretch& stretch, int sublayer);
    [[nodiscard]] bool wants_stacks(std::span<const Row> rows, const Stretch& stretch) const;

    /// What rows need between two kernels; all for rows_max rows.
    struct Workspace {
        float* hidden = nullptr;   // [rows][dim]
        void* input = nullptr;     // [rows][padded dim]: of q k v, gate up, heads
        float* squares = nullptr;  // [rows][tiles]
        float* qkv = nullptr;      // [rows][q + k + v]
        void* mixed = nullptr;     // [rows][padded q]: of attention's out
        void* gated = nullptr;     // [rows][padded ffn]: of down
        void* turned = nullptr;    // [rows][padded dim]: of a head behind its transform
        float* partials = nullptr;
        float* logits = nullptr;         // [rows][vocab]
        cuda::DrawRow* draws = nullptr;  // [rows], with their scratch and what was drawn
        std::byte* draw_scratch = nullptr;
        std::int32_t* tokens = nullptr;
        cuda::CandidateList* lists = nullptr;
    };
    static std::uint64_t place(const ModelConfig& config,
                               const CudaOptions& options,
                               std::byte* base,
                               Workspace& to);

    const ModelConfig& config_;
    const CudaWeights& weights_;
    CudaCache& cache_;
    CudaCache* adapter_cache_;
    int first_layer_;
    int last_layer_;
    int rows_max_;
    int processors_;
    bool graphs_on_;
    RopeTable rope_;
    cuda::Stream stream_;
    cuda::Stream urgent_;
    cuda::DeviceMemory memory_;
    cuda::PinnedMemory pinned_;       // hidden states or logits on their way
    cuda::PinnedMemory draw_pinned_;  // what is drawn on the way there, what was on the way back
    Workspace at_;
    WaveTables tables_;
    int rows_now_ = 0;       // of the stretch that is being launched: the size of its tiles
    int unit_rows_now_ = 1;  // of its attention units
    bool one_split_now_ = false;
    std::map<GraphKey, Recorded> recorded_;
};

}  // namespace paceline
