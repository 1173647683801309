// DraftModel: a model as a proposer: it computes candidates after nodes of candidate trees, for
// many requests in one pass.
//
//     prepare(expansions)     loop   assigns slots, builds rows: text that is not in the cache
//                                    yet (in chunks), then the wanted nodes with their uncached
//                                    ancestors
//     run()               job    the layers, the candidates of the wanted rows (draft_head.hpp)
//     take()              loop   assigns the slots to their nodes, or to the text if they were
//                                committed meanwhile; frees those of nodes that were dropped
//
// Borrows its backend and owns the backend's KV slots; DraftText records per request which
// committed tokens and nodes are in the cache. The target does not read this cache: an error in it
// costs acceptance, never exactness. A slot that is freed while a pass runs is not used again
// before take(). The draft's vocabulary may be smaller than the target's or padded: tokens that the
// target does not have are never proposed. After a token that the draft does not know it proposes
// nothing until enough text has followed, and then reads only the text after that token.
// An EAGLE draft (Backend::feature_slots()) reads a feature beside each token: the target's, as far
// as receive() has been told, else its own output. With `target_features` a text waits for its
// first verdict, before which those of its prompt come, and accepted candidates are read anew.
// Pages are taken as a text grows, behind blocks that it shares with texts before it. A text that
// finds no page is not served until some are free.
// Threads: the actor's loop; run() alone is the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/decoding/draft_tree.hpp"
#include "actors/decoding/drawn_siblings.hpp"
#include "actors/decoding/request.hpp"
#include "actors/decoding/slot_allocator.hpp"
#include "actors/draft/draft_head.hpp"
#include "model/backend.hpp"
#include "model/device_sampler.hpp"
#include "model/feature_slots.hpp"
#include "model/sampling/candidates.hpp"
#include "model/sampling/sampling.hpp"
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

/// The pages of a draft's cache, and what texts share of them.
struct DraftPool {
    explicit DraftPool(std::int32_t kv_slots) : pages{kv_slots} {}
    KvPages pages;
    PrefixTree prefixes{pages};
    // Each feature that a text keeps holds it: its further holders are their number.
    std::shared_ptr<const int> kept_features = std::make_shared<const int>();
    [[nodiscard]] std::int64_t features_kept() const { return kept_features.use_count() - 1; }
};

/// A feature that is not in its slot yet.
struct KeptFeature {
    std::vector<float> states;
    std::shared_ptr<const int> counted;  // DraftPool::kept_features
};

/// One request's text at a draft, and which of it is in the cache. The cache belongs to the
/// DraftModel.
struct DraftText {
    explicit DraftText(const Request& request);

    std::vector<TokenId> tokens;  // committed; the last one is the tree's root
    DraftTree tree;
    SamplingParams sampling;
    Position context;  // tokens that the text may have
    std::string cache_salt;
    int draw_top = 0;  // candidates are drawn from so many tokens; 0: the best ones

    /// Applies committed tokens to text, tree and cache.
    DraftTreeUpdate follow(std::span<const TokenId> more);

    struct Cache {
        std::shared_ptr<DraftPool> pool;  // an abandoned job may outlive the model
        RequestSlots slots;
        Position positions;                           // that the slots are for
        Position begin = 0;                           // of the text; what is before it is not known
        bool read_again = false;                      // candidates that became text are read anew
        bool waits = false;                           // for the first verdict
        std::size_t checked = 0;                      // tokens of the text that were looked at
        std::optional<std::uint64_t> short_at = {};   // KvPages::releases() when none was free
        std::vector<DraftNodeId> became_text = {};    // since the last pass was prepared
        std::vector<DraftTree::Freed> given_up = {};  // by candidates that are to be read anew
        // Of the target, by position; not in their slots yet.
        std::map<Position, KeptFeature> features = {};
        [[nodiscard]] Position cached() const {  // the text's tokens below this are in the cache
            return begin + static_cast<Position>(slots.committed().size());
        }
    };
    std::optional<Cache> cache = {};
};

class DraftModel {
public:
    /// The backend starts at layer 0 and has the head.
    DraftModel(Backend& backend, DraftModelOptions options);
    DraftModel(const DraftModel&) = delete;
    DraftModel& operator=(const DraftModel&) = delete;
    ~DraftModel();

    void open(DraftText& text);
    /// Whether the model can compute candidates after the text's root.
    [[nodiscard]] bool knows(const DraftText& text) const;
    /// Committed tokens before the root that are not in the cache; 0 if the model does not serve
    /// the text.
    [[nodiscard]] Position behind(const DraftText& text) const;

    /// The target's features of `text` from `first` on, [positions, width]. Later ones of a
    /// position take the place of earlier ones; those outside the text's context are dropped, and
    /// the text's oldest where kFeaturesKeptMax wait.
    /// False: this model expects none, or they are of another width.
    bool receive(DraftText& text, Position first, ConstHiddenRows rows, std::size_t width);

    [[nodiscard]] bool expects_features() const { return options_.target_features; }

    struct Expansion {
        std::shared_ptr<DraftText> text;
        std::vector<DraftNodeId> expand;  // best first
        int candidates = 1;               // after each
    };
    /// Prepares as many of the expansions as there is room for, in their order. Nodes that cannot
    /// be expanded are closed. False: there is nothing to run.
    bool prepare(std::span<const Expansion> expansions);
    RunOutcome run(const CancelToken* cancel);

    struct Said {
        std::shared_ptr<DraftText> text;
        DraftNodeId node = kNoDraftNode;
        std::vector<Candidate> candidates = {};
        DrawnSiblingsPtr drawn = nullptr;  // not nullptr: they were drawn, in this order
    };
    /// A node whose keys and values this pass has computed, and that is in the tree still.
    struct Computed {
        std::shared_ptr<DraftText> text;
        DraftNodeId node = kNoDraftNode;
    };
    struct Taken {
        std::vector<Said> said;
        std::vector<Computed> computed;
    };
    /// After run(). A cancelled run has no results.
    [[nodiscard]] Taken take(RunOutcome outcome);

    /// For jobs of their own; before any text is opened. The backend's KV has slots for them.
    void reserve_scratch(std::int32_t rows);
    [[nodiscard]] std::span<const KvSlot> scratch() const { return scratch_assigned_; }
    /// Whether all keys before `position` of the text are in the cache, and the token there is
    /// known.
    [[nodiscard]] bool has_read(const DraftText& text, Position position) const;
    /// A job of its own, not while a pass is prepared: one layer on residuals [rows, dim], each at
    /// `position`, seeing the text before it and itself. Precondition: has_read().
    RunOutcome run_layer(const DraftText& text,
                         Position position,
                         int layer,
                         std::span<float> states);
    void copy(ConstHiddenRows from, HiddenRows to) { backend_.copy(from, to); }
    [[nodiscard]] const SkipSet& skip() const { return options_.skip; }
    /// Rows of candidates skip this set from now on. Cached keys of candidates were computed with
    /// the old set: the caller drops them (DraftTree::drop_slots()).
    void set_skip(const SkipSet& skip);

    /// Bytes of one token's keys and values; 0 if they cannot be sent to another process.
    [[nodiscard]] std::size_t kv_bytes() const { return backend_.kv_bytes(); }
    void read_kv(KvSlot slot, KvBytes bytes) const { backend_.read_kv(slot, bytes); }
    /// Takes this node's keys and values from another process. False if they are not used: the node
    /// was dropped, has them already, or its parent has none.
    bool write_kv(DraftText& text, DraftNodeId node, ConstKvBytes bytes);
    /// The same for a token of the text that comes next in the cache.
    bool write_kv_at(DraftText& text, Position position, ConstKvBytes bytes);

    /// Layers that candidates run through, two sub-layers of either kind for one.
    [[nodiscard]] std::uint32_t layers() const;
    /// Of the prepared pass.
    [[nodiscard]] std::uint32_t rows() const { return static_cast<std::uint32_t>(rows_.size()); }
    [[nodiscard]] std::uint32_t heads() const { return static_cast<std::uint32_t>(heads_.size()); }
    [[nodiscard]] std::int32_t context() const;
    [[nodiscard]] const Backend& backend() const { return backend_; }
    /// For jobs of their own, which run between passes and write to scratch slots alone.
    [[nodiscard]] Backend& backend() { return backend_; }
    [[nodiscard]] HeadId head() const { return head_.id(); }
    /// That texts can take; those of cached blocks that none holds are among them.
    [[nodiscard]] std::int32_t free_pages() const {
        return pool_->pages.free_pages() + pool_->prefixes.unheld();
    }

private:
    struct PassRow {
        std::shared_ptr<DraftText> text;
        DraftNodeId node = kNoDraftNode;  // kNoDraftNode: a token of the text
        Position position = 0;
        KvSlot slot = kNoSlot;
        bool allocated = false;  // the slot, for this row; else the node had it
        std::size_t path = 0;    // of the row, in paths_
        std::size_t path_size = 0;
    };
    struct Chunk {
        std::shared_ptr<DraftText> text;
        Position length = 0;  // in the cache before it
    };

    void free_dropped(DraftText& text) const;
    void begin_behind(DraftText& text, std::size_t unknown) const;
    void add(const Expansion& expansion);
    void pass_over_unknown(DraftText& text) const;
    bool catch_up(const std::shared_ptr<DraftText>& text);
    bool add_node(const Expansion& expansion, DraftNodeId id);
    [[nodiscard]] bool can_compute(const DraftText& text, const DraftNode& node) const;
    [[nodiscard]] const PassRow* row_of(const DraftText& text, DraftNodeId id) const;
    [[nodiscard]] std::size_t room() const { return options_.rows_max - pass_.size(); }
    void build_rows();
    void place_features();
    void place_features(const std::shared_ptr<DraftText>& text);
    [[nodiscard]] bool skips(const PassRow& row) const;
    void place(const PassRow& row, Taken& taken);
    void undo();

    Backend& backend_;
    FeatureSlots* features_;  // nullptr: rows read none
    DraftModelOptions options_;
    SublayerMask mask_;  // of options_.skip
    std::shared_ptr<DraftPool> pool_;
    DraftHead head_;
    bool running_ = false;                       // between prepare() and take()
    std::optional<RequestSlots> scratch_slots_;  // of other jobs than passes
    std::vector<KvSlot> scratch_assigned_;
    std::vector<PassRow> pass_;
    // Features that this pass has put into slots: forgotten once it is done.
    std::vector<std::pair<std::shared_ptr<DraftText>, Position>> placed_;
    std::vector<PassHead> heads_;
    std::vector<Chunk> chunks_;
    std::vector<KvSlot> paths_;
    std::vector<Row> rows_;
    RowMemory hidden_;  // [rows, dim]
};

}  // namespace paceline
