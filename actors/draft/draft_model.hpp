// DraftModel: a model as a proposer: it computes candidates after nodes of candidate trees, for
// many requests in one pass.
//
//     prepare(expansions)     loop   the rows of a pass (draft_rows.hpp)
//     run()                   job    the layers, the candidates of the wanted rows (draft_head.hpp)
//     take()                  loop   the results
//
// What it knows of texts between passes: which of their tokens and nodes are in its KV cache
// (cache(): draft_cache.hpp), and the target's features of them (features(): draft_features.hpp).
// Jobs of others run between passes, on the backend, and write to slots of their own alone
// (draft_scratch.hpp).
// Borrows its backend and owns the backend's KV slots. The target does not read this cache: an
// error in it costs acceptance, never exactness.
// Threads: the actor's loop; run() alone is the job.
#pragma once

#include <cstdint>
#include <span>

#include "actors/draft/draft_cache.hpp"
#include "actors/draft/draft_features.hpp"
#include "actors/draft/draft_head.hpp"
#include "actors/draft/draft_rows.hpp"
#include "actors/draft/draft_text.hpp"
#include "model/backend.hpp"
#include "model/skip_set.hpp"

namespace paceline {

struct DraftModelOptions {
    HeadId head = HeadId::Final;
    int vocab_size = 0;            // the target's; ids from here on are never proposed
    int shared_tokens = 0;         // ids below this are in both vocabularies; 0: all of them
    std::uint32_t rows_max = 64;   // of one pass: rows of text and of nodes
    Chance* chance = nullptr;      // of draws, for tests; nullptr: the counter-based generator
    SkipSet skip = {};             // the sub-layers that rows of candidates skip
    bool whole_text = false;       // rows of committed text run all sub-layers
    bool target_features = false;  // an EAGLE draft is sent the target's features
};

class DraftModel {
public:
    /// The backend starts at layer 0 and has the head.
    DraftModel(Backend& backend, DraftModelOptions options);
    DraftModel(const DraftModel&) = delete;
    DraftModel& operator=(const DraftModel&) = delete;

    /// Prepares as many of the expansions as there is room for, in their order. Nodes that cannot
    /// be expanded are closed. False: there is nothing to run.
    bool prepare(std::span<const DraftExpansion> expansions);
    RunOutcome run(const CancelToken* cancel);
    /// After run(). A cancelled run has no results.
    [[nodiscard]] DraftPassResult take(RunOutcome outcome);

    /// Takes this node's keys and values from another process. False if they are not used: the node
    /// was dropped, has them already, or its parent has none.
    bool write_kv(DraftText& text, DraftNodeId node, ConstKvBytes bytes);
    /// The same for a token of the text that comes next in the cache.
    bool write_kv_at(DraftText& text, Position position, ConstKvBytes bytes);

    [[nodiscard]] const SkipSet& skip() const { return options_.skip; }
    /// Rows of candidates skip this set from now on. Cached keys of candidates were computed with
    /// the old set: the caller drops them (DraftTree::drop_slots()).
    void set_skip(const SkipSet& skip);
    /// Layers that candidates run through, two sub-layers of either kind for one.
    [[nodiscard]] std::uint32_t layers() const;

    /// The prepared pass.
    [[nodiscard]] const DraftRows& pass() const { return rows_; }
    [[nodiscard]] const DraftCache& cache() const { return cache_; }
    [[nodiscard]] DraftFeatures& features() { return features_; }
    /// For jobs of their own, and to read keys and values.
    [[nodiscard]] Backend& backend() { return backend_; }
    [[nodiscard]] HeadId head() const { return head_.id(); }

private:
    void add(const DraftExpansion& expansion);

    Backend& backend_;
    DraftModelOptions options_;
    SublayerMask mask_;  // of options_.skip
    DraftCache cache_;
    DraftFeatures features_;
    DraftHead head_;
    DraftRows rows_;    // none between take() and prepare()
    RowMemory hidden_;  // [rows, dim]
};

}  // namespace paceline
