// DraftRows: the rows of one pass of a draft's model, for many requests: text that is not in the
// cache yet (in chunks), then the wanted nodes with their uncached ancestors.
//
//     catch_up(), add_node()    assign slots
//     build()                   the backend's rows
//     finish()                  the pass has run: assigns the slots to their nodes, or to the text
//                               if they were committed meanwhile; frees those of dropped nodes
//
// A slot that is freed while a pass runs is not used again before finish().
// Invariants: no row is there twice; the rows of a text follow its cached prefix without a gap.
// Borrows the cache; holds the texts until finish(). Threads: the actor's loop; the job reads
// rows(), and fills in the candidates of heads().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/decoding/drawn_siblings.hpp"
#include "actors/draft/draft_cache.hpp"
#include "actors/draft/draft_head.hpp"
#include "actors/draft/draft_text.hpp"
#include "model/backend.hpp"
#include "model/rows.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

/// What a request wants of the next pass.
struct DraftExpansion {
    std::shared_ptr<DraftText> text;
    std::vector<DraftNodeId> expand;  // best first
    int candidates = 1;               // after each
};

/// The candidates after a node.
struct NodeCandidates {
    std::shared_ptr<DraftText> text;
    DraftNodeId node = kNoDraftNode;
    std::vector<Candidate> candidates = {};
    DrawnSiblingsPtr drawn = nullptr;  // not nullptr: they were drawn, in this order
};

/// A node whose keys and values a pass has computed, and that is in the tree still.
struct ComputedNode {
    std::shared_ptr<DraftText> text;
    DraftNodeId node = kNoDraftNode;
};

struct DraftPassResult {
    std::vector<NodeCandidates> candidates;
    std::vector<ComputedNode> computed;
};

struct PassRow {
    std::shared_ptr<DraftText> text;
    DraftNodeId node = kNoDraftNode;  // kNoDraftNode: a token of the text
    Position position = 0;
    KvSlot slot = kNoSlot;
    bool allocated = false;  // the slot, for this row; else the node had it
    std::size_t path = 0;    // of the row, in DraftRows::paths_
    std::size_t path_size = 0;
};

/// The sub-layers that rows skip; nullptr: none.
struct PassMasks {
    const SublayerMask* text = nullptr;
    const SublayerMask* candidates = nullptr;
};

class DraftRows {
public:
    DraftRows(const DraftCache& cache, std::uint32_t rows_max);

    /// The text up to the root; false if the root's row does not fit after it into this pass.
    bool catch_up(const std::shared_ptr<DraftText>& text);
    /// The node's row, with those above it that are not in the cache, and its head. A node that
    /// cannot be expanded is closed. False: the pass is full.
    bool add_node(const DraftExpansion& expansion, DraftNodeId id);
    /// All rows are there: they run through this many sub-layers.
    void build(std::int32_t sublayers, const PassMasks& masks);
    /// The results, none of a cancelled pass. The next one has no rows yet.
    [[nodiscard]] DraftPassResult finish(RunOutcome outcome);

    [[nodiscard]] bool empty() const { return pass_.empty(); }
    [[nodiscard]] bool full() const { return room() == 0; }
    [[nodiscard]] bool has(const DraftText& text, DraftNodeId id) const {
        return row_of(text, id) != nullptr;
    }
    [[nodiscard]] std::span<const PassRow> pass_rows() const { return pass_; }
    [[nodiscard]] std::span<const Row> rows() const { return rows_; }
    [[nodiscard]] std::span<PassHead> heads() { return heads_; }
    [[nodiscard]] std::span<const PassHead> heads() const { return heads_; }
    /// Positions of the longest text, with its path.
    [[nodiscard]] std::int32_t context() const;

private:
    [[nodiscard]] std::size_t room() const { return rows_max_ - pass_.size(); }
    [[nodiscard]] const PassRow* row_of(const DraftText& text, DraftNodeId id) const;
    static void place(const PassRow& row, DraftPassResult& result);
    void undo() const;

    const DraftCache& cache_;
    std::uint32_t rows_max_;
    std::vector<PassRow> pass_;
    std::vector<PassHead> heads_;
    std::vector<KvSlot> paths_;
    std::vector<Row> rows_;
};

}  // namespace paceline
