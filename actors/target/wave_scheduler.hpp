// WaveScheduler: decides which rows the target works on next. Used by the Dispatcher.
//
// It grows the token tree from proposals, names nodes and KV slots, and forms waves. The life of
// a request here:
//
//            begin            text in the cache         proposal, or waited enough
//   [absent] -----> [Prefill] -----------------> [Ready] -------------------> [InFlight]
//                                                  ^  |                           |  |
//                                                  |  +- more rows on the trunk --+  |
//                                                  |        (several in flight)      |
//                                                  +-------- verdict ----------------+
//                                                  |
//                                                  +-- it ends the answer, or Stop --> [Over]
//
// [Over] keeps the committed slots for a next turn, until others need the pages.
//
// When the first segment is free it takes the rows that were not sent yet (WaveShape says which),
// up to a limit; after a miss the root alone is what there is. `Sequential` and `Lockstep` wait a little
// for the draft first; a draft that stays silent is not waited for again until it speaks, one that
// is lost not until it has joined.
// A wave mixes requests (continuous batching): first the verify rows of all that are ready, each
// with a fair share of kVerifyRowsMax, then prefill rows of others in what room is left. Who was passed
// over comes first in the next one, a prefill with a share of its own.
// No row is sent whose next token could not be committed: below a token that ends the answer, or
// after the last place that the limits leave.
// Pure apart from what it is told; not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/decoding/slot_allocator.hpp"
#include "actors/protocol/request_state.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

enum class StartRule : std::uint8_t {
    AtOnce,      // with whatever the tree holds: no draft, or one that runs ahead (event-driven)
    Sequential,  // wait for the draft's answer to the new root, but not longer than proposal_wait
    Lockstep,    // as PEARL and FOLD are published: rounds; the next wave waits for the verdict and
                 // for the draft to complete its round (which it begins with the wave), but not
                 // longer than proposal_wait
};

/// Which nodes of a tree a verify wave takes.
enum class WaveShape : std::uint8_t {
    Chain,  // the trunk: the best child, its best child, and so on
    Tree,   // the most probable nodes whose parents are sent or in the wave as well
};

struct DispatchOptions {
    StartRule start = StartRule::Sequential;
    WaveShape shape = WaveShape::Chain;
    Micros proposal_wait{2000};
    std::uint32_t rows_max = kGammaMax + 1;  // of one request in a wave, the root included
    std::uint32_t waves_in_flight_max = 1;   // verify waves of one request
    // Of one request's prefill in a wave; read by all segments, for it bounds the wave.
    std::uint32_t prefill_rows = kVerifyRowsMax;
    std::uint32_t requests_max = kWavePartsMax;  // that share a wave
    // A row is sent only if its path is at least this probable, as its proposers believe; the root
    // always is. 0: no limit.
    float verify_reach_min = 0.0F;

    /// Rows of the largest wave; at most kVerifyRowsMax of them are verify rows.
    [[nodiscard]] std::uint32_t wave_rows() const { return std::max(prefill_rows, kVerifyRowsMax); }
};

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const DispatchOptions& options);

/// What stood ready for the new root when a verdict came: the proposer of that candidate, if there was one.
struct Outcome {
    bool prepared = false;
    msg::Origin origin = msg::Origin::Trunk;
    bool open = false;  // lockstep: the round that may hold it is still to come; take_settled()
};

/// What became of proposals. No counter of the stage's telemetry has these events; what it counts
/// (actors/protocol/counters.hpp) is counted there alone, by the Dispatcher.
struct ProposalTally {
    std::uint64_t used = 0;           // continued the text below the root of the day
    std::uint64_t outdated = 0;       // did not: the text went on in another way
    std::uint64_t waits_expired = 0;  // turns that started without what the draft was to say
};

class WaveScheduler {
public:
    WaveScheduler(DispatchOptions options, std::int32_t kv_slots);

    /// Errors: OutOfMemory when the cache cannot hold the request's context beside the others.
    /// With spec().reuse the slots of that many positions stay from the attempt before.
    Status begin(const std::shared_ptr<RequestState>& state, Micros now);
    /// Whether the slots of a request are still kept: those of requests that are over go, the
    /// oldest first, when others need their pages.
    [[nodiscard]] bool holds(RequestId request) const;

    /// Whether begin() of this request would find its pages, those of requests that are over
    /// included.
    [[nodiscard]] bool has_room(RequestId request, const Request& spec) const;
    /// Whether there is a draft to wait for. There is one at the start, unless `start` says that
    /// no proposal is waited for.
    void draft_changed(bool present);

    /// The proposer: the one that Sequential and Lockstep wait for, or another.
    enum class Speaker : std::uint8_t { Draft, Other };
    /// Merges a proposal into the tree: what of it continues the text below the current root. One
    /// for a root that is still to come is kept: the draft may have heard the verdict first.
    void propose(const msg::Proposal& proposal, Speaker speaker, Micros now);
    /// Candidates below a node were drawn: from now on they belong to its row, if the tree has that node
    /// and it was not sent. One for a root that is still to come is kept.
    void take_drawn(const msg::Draw& draw);
    /// A slot for a node that a draft computes ahead of its wave, the node's own from now on; nothing if
    /// none is left. What no wave took is free again with the next verdict.
    [[nodiscard]] std::optional<KvSlot> name_ahead(RequestId request, NodeId node);
    /// Such a node's sub-layers below `start` are done, as the target computes them; what it is before
    /// `start` is row `tensor_row` of what the caller keeps of the request.
    void computed_ahead(RequestId request,
                        NodeId node,
                        std::uint32_t start,
                        std::uint32_t tensor_row);
    /// Slots that belong to no request, for rows that nothing is committed of. Errors: OutOfMemory.
    [[nodiscard]] Result<RequestSlots> scratch_slots(std::int32_t count) {
        return RequestSlots::make(pages_, count);
    }
    /// Pages of the KV cache that running requests and scratch slots hold. What the requests that are
    /// over still hold for a next turn is not counted: it goes when room is needed.
    [[nodiscard]] std::int32_t pages_in_use() const;
    /// A verdict was applied to the state: `step` is what it did. Returns what stood ready for
    /// the new root.
    Outcome follow(RequestId request, const TreeStep& step, Micros now);
    /// Lockstep: whether the draft has said Halfway (or more) since the wave of the current root
    /// was formed, or is not waited for any longer.
    [[nodiscard]] bool halfway(RequestId request, Micros now);

    /// The next wave for the layers, its slots and names taken; nothing if there is none now.
    /// epoch, tensor, tensor_generation and the parts' hold are the caller's to fill, and prefill
    /// parts are the caller's to add to their states.
    [[nodiscard]] std::optional<msg::Wave> next_wave(Micros now);
    /// The open outcomes of roots that went into a wave since the last call.
    [[nodiscard]] std::vector<Outcome> take_settled();
    /// When a wave (or halfway()) will be due even if nothing else happens.
    [[nodiscard]] std::optional<Micros> due() const;

    [[nodiscard]] const ProposalTally& proposals() const { return proposals_; }
    /// KV slots in use by a request; 0 if it is not here.
    [[nodiscard]] std::int32_t slots_in_use(RequestId request) const;

private:
    static constexpr Position kNever = -1;
    /// How far the draft has come: the newest root of which it has said so much.
    struct Heard {
        Position anything = kNever;
        Position halfway = kNever;
        Position complete = kNever;
    };
    /// A node that a draft computes ahead of its wave.
    struct AheadRow {
        Position position = 0;
        KvSlot slot = kNoSlot;
        std::uint32_t start = 0;
        std::uint32_t tensor_row = 0;
    };
    /// What the scheduler keeps of one request.
    struct Entry {
        std::shared_ptr<RequestState> state;
        RequestSlots slots;
        std::uint32_t next_wave = 0;
        std::deque<std::vector<NodeId>> in_flight = {};  // nodes of verify parts without verdict
        std::map<NodeId, AheadRow> ahead_rows = {};      // of nodes that are not in a wave yet
        Heard heard = {};
        Position round_root = kNever;           // of the last verify wave; kNever: there was none
        std::uint32_t silent = 0;               // waits in a row that were waited out
        Micros wait_until{0};                   // for what the draft is to say before a wave
        std::optional<Micros> half_until = {};  // for its Halfway, while a wave is held for it
        std::optional<Outcome> open = {};       // of the current root, until it is sent
        bool blocked = false;      // found no slot for any further row: until the next verdict
        std::uint64_t passed = 0;  // waves in a row that had no room for it
        std::uint64_t served = 0;  // the wave that it was last part of
        // The newest proposals for roots that are still to come, by speaker.
        std::array<std::optional<msg::Proposal>, 2> ahead = {};
        std::vector<msg::Draw> drawn_ahead = {};  // likewise, in the order in which they came
    };
    /// A request that could be part of the wave that is being formed.
    struct Candidate {
        Entry* entry = nullptr;
        std::vector<NodeId> nodes = {};  // of a verify part, in the order in which they go
        std::uint32_t wanted = 0;        // rows
        std::uint32_t granted = 0;

        [[nodiscard]] bool prefills() const { return nodes.empty(); }
    };

    bool evict();
    static void free_ahead_rows(Entry& entry);
    void restart(Entry& entry, Micros now) const;
    void merge(Entry& entry, const msg::Proposal& proposal, Speaker speaker, Micros now);
    static void bind(Entry& entry, const msg::Draw& draw);
    void hear(Entry& entry, const msg::Proposal& proposal, Micros now) const;
    void grow(Entry& entry, const msg::Proposal& proposal, std::int16_t top) const;
    [[nodiscard]] Position wanted_root(const Entry& entry) const;
    [[nodiscard]] bool waits_for_draft(const Entry& entry) const;

    // Waves (wave_scheduler_waves.cpp).
    [[nodiscard]] bool may_start(const Entry& entry, Micros now) const;
    [[nodiscard]] bool worth_a_row(const Entry& entry, const TreeNode& node) const;
    [[nodiscard]] std::vector<NodeId> unsent_nodes(const Entry& entry) const;
    [[nodiscard]] std::vector<NodeId> unsent_trunk(const Entry& entry) const;
    [[nodiscard]] std::vector<NodeId> unsent_tree(const Entry& entry) const;
    [[nodiscard]] std::vector<Candidate> candidates(Micros now);
    void share_rows(std::vector<Candidate>& candidates) const;
    [[nodiscard]] msg::Wave form(std::vector<Candidate>& candidates, Micros now);
    void add_part(msg::Wave& wave, const Candidate& candidate, Micros now);
    [[nodiscard]] std::uint32_t add_prefill(msg::Wave& wave, Entry& entry, std::uint32_t rows);
    [[nodiscard]] std::uint32_t add_verify(msg::Wave& wave, Entry& entry, const Candidate& chosen);

    DispatchOptions options_;
    KvPages pages_;
    std::map<RequestId, Entry> entries_;
    std::uint64_t waves_ = 0;
    bool draft_present_ = true;
    std::vector<Outcome> settled_;
    ProposalTally proposals_;
};

}  // namespace paceline
