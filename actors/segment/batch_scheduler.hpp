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
// When the first segment is free it takes the rows that were not sent yet, up to a limit; if the
// new root was not a candidate, that is the root alone. A batch mixes requests (continuous
// batching): the verify rows of all ready requests and prefill rows of others. Requests that found
// no room come first in the next batch. The parts of a batch, in scheduling/:
//
//     proposal, draw --> candidate_merge (a future root: future_candidates) --> token tree
//     which requests     those that do not wait: draft_wait, request_pages
//     which rows         unsent_rows, then how many of each request: row_budget
//     the batch          batch_writer: KV slots, also those of ahead_rows
//
// This class keeps the requests (SchedulerEntry), and says when what happens to them.
// No I/O and no clock: all input comes by calls. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/account/speculation_account.hpp"
#include "actors/decoding/retained_states.hpp"
#include "actors/protocol/request_state.hpp"
#include "actors/segment/scheduling/dispatch_options.hpp"
#include "actors/segment/scheduling/draft_wait.hpp"
#include "actors/segment/scheduling/future_candidates.hpp"
#include "actors/segment/scheduling/request_pages.hpp"
#include "actors/segment/scheduling/row_budget.hpp"
#include "actors/segment/scheduling/scheduler_entry.hpp"
#include "actors/self_draft/self_draft_host.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

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
    BatchScheduler(const BatchScheduler&) = delete;
    BatchScheduler& operator=(const BatchScheduler&) = delete;

    void begin(const std::shared_ptr<RequestState>& state, Micros now);
    /// It was stopped. Also if it is unknown, requests that found no page try again.
    void end(RequestId request);
    void end_all();

    /// Whether there is a draft to wait for (DraftWait). There is one at the start.
    void draft_changed(bool present);

    /// Merges a proposal's candidates below the current root into the tree. One for a future root
    /// is kept: the draft may have received the verdict first.
    void propose(const msg::Proposal& proposal, ProposalSender sender, Micros now);
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
    /// DraftWait::halfway(); of a request that is not known: true.
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
    [[nodiscard]] SchedulerEntry* find(RequestId request);
    void drop(RequestId request);
    void merge(SchedulerEntry& entry,
               const msg::Proposal& proposal,
               ProposalSender sender,
               Micros now);
    [[nodiscard]] RowOrder unsent(const SchedulerEntry& entry) const;
    [[nodiscard]] bool may_start(const SchedulerEntry& entry, Micros now) const;
    [[nodiscard]] std::vector<SchedulableRequest> schedulable(Micros now);
    [[nodiscard]] msg::Batch form(std::span<SchedulableRequest> chosen, Micros now);

    DispatchOptions options_;
    SpeculationAccount* account_;
    RequestPages pages_;
    DraftWaitRule wait_rule_;
    SchedulerEntries entries_;
    RowBudget budget_;
    std::uint64_t batches_ = 0;
    std::vector<Outcome> resolved_;
    ProposalTally proposals_;
};

}  // namespace paceline
