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
// A step of an EAGLE draft (run_step()) is a batch whose rows all run the whole segment, with F
// between the embedding and the first layer (cuda_eagle.hpp):
//
//   embed ──> hidden = F [hidden ; feature] ──> the layers, recorded ──> features ──> head, draws
//
// Parts: the order of the devices (cuda_group.hpp), the kernels of a sub-layer (cuda_launches.hpp),
// heads and draws (cuda_heads.hpp), hidden states on their way (cuda_rows.hpp), keys and values
// (cuda_pages.hpp). Borrows the ranks, whose workspaces it makes; owns the tables. One call at a
// time, from one thread.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <vector>

#include "model/backend.hpp"
#include "model/cuda/batch_tables.hpp"
#include "model/cuda/cuda_eagle.hpp"
#include "model/cuda/cuda_group.hpp"
#include "model/cuda/cuda_heads.hpp"
#include "model/cuda/cuda_launches.hpp"
#include "model/cuda/cuda_pages.hpp"
#include "model/cuda/cuda_rows.hpp"
#include "model/eagle_layer.hpp"
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

/// Hidden states [rows, dim] of a batch. `in` is read if not all rows begin with a token; where
/// `out` is empty they stay in the workspace.
struct CudaStates {
    ConstHiddenRows in = {};
    HiddenRows out = {};
};

/// Layers [first, last) of a model, without what no row runs.
struct CudaSegment {
    int first = 0;
    int last = 0;
    SublayerMask skipped;
    KvLayers kv;
};

class CudaForward {
public:
    /// `ranks` are one or several; with weights and caches when the first call comes.
    CudaForward(const ModelConfig& config, const CudaOptions& options, CudaGroup::Ranks ranks);
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
    [[nodiscard]] int head_rows() const;
    [[nodiscard]] CudaRows& states() { return states_; }
    [[nodiscard]] CudaPages& pages() { return pages_; }

    /// Rows of one batch through their sub-layers, and what is drawn after them.
    RunOutcome run(std::span<const Row> rows,
                   const CudaStates& states,
                   const CudaDraws& draws,
                   const CudaWatch& watch);
    /// The same for a step of an EAGLE draft; `out` as CudaStates has it. Rows begin with tokens.
    RunOutcome run_step(const EagleStep& step,
                        HiddenRows out,
                        const CudaDraws& draws,
                        const CudaWatch& watch);
    /// Nothing, unless this is an EAGLE draft.
    [[nodiscard]] CudaEagle* eagle() { return eagle_ ? &*eagle_ : nullptr; }
    /// The adapter's x of each row of a batch.
    RunOutcome run_adapter(std::span<const Row> rows,
                           const CudaStates& states,
                           const CancelToken* cancel);
    /// Logits [rows, head.output.outputs] of at most head_rows() hidden states.
    void head(const CudaHead& head, ConstHiddenRows hidden, int rows, float* logits);
    /// What is drawn from hidden states that are given: at most head_rows() of them, each with a
    /// job.
    void draw(ConstHiddenRows hidden, const CudaDraws& draws);
    /// CudaBackend::batch_seconds().
    double batch_seconds(std::span<const Row> rows, int times);

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
    /// What the launches of a recording depend on; it is always of the whole segment, and embeds
    /// tokens if that is the first one, but for an EAGLE draft.
    struct GraphKey {
        int rows;  // of its grids
        bool one_split;
        int attention_tiles;
        [[nodiscard]] auto operator<=>(const GraphKey&) const = default;
    };

    [[nodiscard]] bool make_rank(CudaRank& rank, const CudaOptions& options);
    [[nodiscard]] std::vector<Stretch> stretches_of(std::span<const Row> rows) const;
    void send(std::span<const Row> rows, ActiveRows active, int heads, int kv_heads);
    void run_and_keep(std::span<const Row> rows,
                      const Stretch& stretch,
                      bool embeds,
                      const CancelToken* cancel);
    void replay(const Stretch& stretch, bool embeds);
    void launch_stretch(const Stretch& stretch, bool embeds);
    void launch_sublayer(int sublayer, int following);
    void embed();
    void gather_states();
    [[nodiscard]] RunOutcome finish_run(HiddenRows out,
                                        const CudaDraws& draws,
                                        const CudaWatch& watch);
    [[nodiscard]] std::span<const int> head_group(std::span<const int> asked,
                                                  std::size_t first) const;
    enum class Waited { Done, Cancelled, Dead };
    [[nodiscard]] Waited wait(const CudaWatch& watch);

    const ModelConfig& config_;
    CudaSegment segment_;
    BatchLimits limits_;
    RopeTable rope_;
    BatchTables tables_;
    CudaGroup group_;
    CudaExchange exchange_;  // empty where the devices reach each other
    CudaLaunches launches_;
    CudaHeads heads_;
    CudaRows states_;
    CudaPages pages_;
    std::optional<CudaEagle> eagle_;
    std::optional<std::map<GraphKey, Recorded>> recorded_;  // nothing: graphs are off
};

}  // namespace paceline
