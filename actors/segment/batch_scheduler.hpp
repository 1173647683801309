// BatchScheduler: decides which rows the target works on next. Used by the Dispatcher.
//
// It grows the token tree from proposals, assigns node ids and KV slots, and forms batches. The
// states of a request:
//
//            begin            text in the cache         proposal, or wait timed out
//   [absent] -----> [Prefill] -----------------> [Ready] -------------------> [InFlight]
//                                                  ^  |                           |  |
//                                                  |  +- more rows on the trunk --+  |
//                                                  |        (several in flight)      |
//                                                  +-------- verdict ----------------+
//                                                  |
//                                                  +-- it ends the answer, or end() --> forgotten
//
// When the first segment is free it takes the rows that were not sent yet (BatchShape selects
// them), up to a limit; if the new root was not a candidate, that is the root alone. `Sequential`
// and `Lockstep` first wait a limited time for the draft. After several waits that timed out they
// stop waiting until the draft sends a proposal; they do not wait for a lost draft until it has
// joined again. A batch mixes requests (continuous batching): the verify rows of all ready requests
// and prefill rows of others, as row_shares.hpp says. Requests that found no room come first in the
// next batch.
// No row is sent whose next token could not be committed: below a token that ends the answer, or
// beyond the token limit or the context. With an account (actors/account) a batch takes the
// candidates that pay, and in a plain turn none.
// Pages of the KV cache, and what is done when they run short: request_pages.hpp.
// No I/O and no clock: all input comes by calls. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/account/speculation_account.hpp"
#include "actors/decoding/retained_states.hpp"
#include "actors/protocol/request_state.hpp"
#include "actors/segment/request_pages.hpp"
#include "actors/segment/rows/row_order.hpp"
#include "actors/segment/rows/row_shares.hpp"
#include "actors/segment/scheduler_entry.hpp"
#include "actors/self_draft/self_draft_host.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

enum class StartRule : std::uint8_t {
    AtOnce,      // with the candidates in the tree: no draft, or one that runs ahead (event-driven)
    Sequential,  // wait for the draft's answer to the new root, but not longer than proposal_wait
    Lockstep,  // as PEARL and FOLD are published: rounds; the next batch waits for the verdict and
               // for the draft to complete its round (which it begins with the batch), but not
               // longer than proposal_wait
};

/// Which nodes of a tree a verify batch takes.
enum class BatchShape : std::uint8_t {
    Chain,  // the trunk: the best child, its best child, and so on
    Tree,   // the most probable nodes whose parents are sent or in the batch as well
};

struct DispatchOptions {
    StartRule start = StartRule::Sequential;
    BatchShape shape = BatchShape::Chain;
    Micros proposal_wait{2000};
    // Of one request in a batch, the root included; a path has at most kGammaMax + 1 of them.
    std::uint32_t rows_max = kGammaMax + 1;
    std::uint32_t batches_in_flight_max = 1;  // verify batches of one request
    // Of one request's prefill in a batch; read by all segments, for it bounds the batch.
    std::uint32_t prefill_rows = kVerifyRowsMax;
    std::uint32_t requests_max = kBatchPartsMax;  // that share a batch
    // Part of a batch's rows that is kept for prompts while other requests decode, 0 .. 0.9.
    float prompt_share = 0.25F;
    // A row is sent only if its path is at least this probable by its proposers' estimates; the
    // root always is sent. 0: no limit.
    float verify_reach_min = 0.0F;
    // Whether candidates are drafted and sent as far as they pay (actors/account).
    Controller controller = Controller::Off;
    std::uint64_t random_decisions = 0;  // of tests: AccountOptions::random_seed
    // An exit starts tokens early, whose batches the next segments may hold until the rows that it
    // proposed follow: these are always sent, and the account speaks to the exit alone.
    bool exits_start_early = false;
    bool draft_is_instant = false;  // the draft has a source that answers at once: a lookup

    /// Rows of the largest batch; at most kVerifyRowsMax of them are verify rows.
    [[nodiscard]] std::uint32_t batch_rows() const {
        return std::max(prefill_rows, kVerifyRowsMax);
    }
};

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const DispatchOptions& options);

/// Counts what happened to proposals. These events are not among the counters of the stage's
/// telemetry (actors/protocol/counters.hpp), which the Dispatcher writes.
struct ProposalTally {
    std::uint64_t used = 0;           // had candidates below the current root
    std::uint64_t outdated = 0;       // had none: other tokens were committed
    std::uint64_t waits_expired = 0;  // batches formed after a wait for the draft timed out
};

class BatchScheduler final : public DraftSlots {
public:
    /// `account`: borrowed; nullptr: all candidates are sent, as the options say. `retained`: the
    /// segments that keep what they pass on.
    BatchScheduler(DispatchOptions options,
                   std::int32_t kv_slots,
                   SpeculationAccount* account = nullptr,
                   std::vector<RetainedBy> retained = {});

    void begin(const std::shared_ptr<RequestState>& state, Micros now);
    /// It was stopped. Also if it is unknown, requests that found no page try again.
    void end(RequestId request);
    void end_all();

    /// Whether there is a draft to wait for. There is one at the start, unless `start` says that
    /// no proposal is waited for.
    void draft_changed(bool present);

    /// The sender of a proposal: the one that Sequential and Lockstep wait for, or another.
    enum class ProposalSource : std::uint8_t { Draft, Other };
    /// Merges a proposal's candidates below the current root into the tree. One for a future root
    /// is kept: the draft may have received the verdict first.
    void propose(const msg::Proposal& proposal, ProposalSource source, Micros now);
    /// The children of a node were drawn: from now on they belong to its row, if the tree has that
    /// node and it was not sent. One for a future root is kept.
    void take_drawn(const msg::Draw& draw);
    // Of a draft in the same segment (DraftSlots).
    [[nodiscard]] std::optional<KvSlot> allocate_ahead(RequestId request, NodeId node) override;
    void computed_ahead(RequestId request,
                        NodeId node,
                        std::uint32_t start,
                        std::uint32_t tensor_row) override;
    [[nodiscard]] Result<RequestSlots> scratch_slots(std::int32_t count) override {
        return pages_.scratch(count);
    }
    /// A verdict was applied to the state: `step` is what it did. Returns which source had proposed
    /// the new root.
    Outcome follow(RequestId request, const TreeUpdate& step, Micros now);
    /// Lockstep: whether the draft has sent Halfway (or Complete) since the batch of the current
    /// root was formed, or the wait has timed out.
    [[nodiscard]] bool halfway(RequestId request, Micros now);

    /// The next batch for the layers, with slots and node ids assigned; nothing if there is none
    /// now. The caller fills in epoch, tensor, tensor_generation and the parts' hold, and adds
    /// prefill parts to their states.
    [[nodiscard]] std::optional<msg::Batch> next_batch(Micros now);
    /// What the pages of the KV cache tell other stages: shortages, prefixes found in the cache.
    [[nodiscard]] RequestPages& pages() { return pages_; }
    [[nodiscard]] const RequestPages& pages() const { return pages_; }
    /// The open outcomes of roots that went into a batch since the last call.
    [[nodiscard]] std::vector<Outcome> take_resolved();
    /// When a batch (or halfway()) will be due even if nothing else happens.
    [[nodiscard]] std::optional<Micros> due() const;

    [[nodiscard]] const ProposalTally& proposals() const { return proposals_; }

private:
    /// A request that could be part of the batch that is being formed.
    struct SchedulableRequest {
        SchedulerEntry* entry = nullptr;
        RowOrder order = {};                     // of a verify part
        std::vector<double> probabilities = {};  // of their paths, with an account
        std::uint32_t wanted = 0;                // rows
        std::uint32_t granted = 0;

        [[nodiscard]] bool prefills() const { return order.nodes.empty(); }
    };

    [[nodiscard]] SlotRule candidate_rule() const;
    void drop(RequestId request);
    static void free_ahead_rows(SchedulerEntry& entry);
    void restart(SchedulerEntry& entry, Micros now) const;
    void merge(SchedulerEntry& entry,
               const msg::Proposal& proposal,
               ProposalSource source,
               Micros now);
    static void bind(SchedulerEntry& entry, const msg::Draw& draw);
    void receive(SchedulerEntry& entry, const msg::Proposal& proposal, Micros now) const;
    void grow(SchedulerEntry& entry,
              const msg::Proposal& proposal,
              std::int16_t top,
              ProposalSource source) const;
    [[nodiscard]] Position wanted_root(const SchedulerEntry& entry) const;
    [[nodiscard]] bool waits_for_draft(const SchedulerEntry& entry) const;

    // Batches (batch_forming.cpp).
    [[nodiscard]] float verify_reach_min_log(const SchedulerEntry& entry) const;
    [[nodiscard]] bool may_start(const SchedulerEntry& entry, Micros now) const;
    [[nodiscard]] bool worth_a_row(const SchedulerEntry& entry, const TreeNode& node) const;
    [[nodiscard]] RowOrder unsent_nodes(const SchedulerEntry& entry) const;
    [[nodiscard]] RowOrder unsent_trunk(const SchedulerEntry& entry) const;
    [[nodiscard]] RowOrder unsent_tree(const SchedulerEntry& entry) const;
    [[nodiscard]] static std::size_t prefill_left(const SchedulerEntry& entry);
    [[nodiscard]] std::vector<SchedulableRequest> candidates(Micros now);
    [[nodiscard]] bool limits_rows() const;
    [[nodiscard]] bool draws(const SchedulerEntry& entry) const;
    void weigh(SchedulableRequest& candidate) const;
    void choose_rows(std::vector<SchedulableRequest>& candidates, Micros now) const;
    [[nodiscard]] std::vector<RowClaim> claims_of(
        std::span<const SchedulableRequest> candidates) const;
    [[nodiscard]] RowLimits row_limits(const BatchSize& verified,
                                       std::uint64_t prompt_context) const;
    void share_rows(std::vector<SchedulableRequest>& candidates) const;
    [[nodiscard]] std::size_t on_their_way() const;
    void charge(const msg::Batch& batch, bool alone, Micros now);
    [[nodiscard]] msg::Batch form(std::vector<SchedulableRequest>& candidates, Micros now);
    void add_part(msg::Batch& batch, const SchedulableRequest& candidate, Micros now);
    [[nodiscard]] std::uint32_t add_prefill(msg::Batch& batch,
                                            SchedulerEntry& entry,
                                            std::uint32_t rows);
    [[nodiscard]] std::uint32_t add_verify(msg::Batch& batch,
                                           SchedulerEntry& entry,
                                           const SchedulableRequest& chosen);

    DispatchOptions options_;
    SpeculationAccount* account_;
    RequestPages pages_;
    SchedulerEntries entries_;
    std::uint64_t batches_ = 0;
    bool draft_present_ = true;
    bool prompts_before_ = false;  // the last batch had prompts alone
    std::vector<Outcome> resolved_;
    ProposalTally proposals_;
};

}  // namespace paceline
