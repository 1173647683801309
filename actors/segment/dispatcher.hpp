// Dispatcher: the role of a target's first segment: decides what the layers work on next.
// Handles: Proposal (from draft, correct and exits), Draw (from draft and correct).
// Emits: Price, to draft, correct and exits; Prefix, to the next segment; PagesWanted (control), to
// the conductor. Its batches are no messages: they are the parts of the next run of its own
// segment, which passes them on.
//
//     next_parts()      the batch that the scheduler (batch_scheduler.hpp) forms from requests and
//                       proposals
//     hold_followed()   a run is passed on with rows that an exit defers: these are held only if
//                       rows of the next batch build on them, so that batch is formed ahead
//     hold_back()       lockstep with an exit: a run waits until the draft is halfway
//
//   a run, in lockstep:   [Running] ----> [Held back] ----> [Passed on]
//                           layers done     the draft has sent Halfway, or its time is over
//
// Owns the account of costs and gains, the scheduler, the batch formed ahead and the run that is
// held back. Threads: the actor's
// loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/account/speculation_account.hpp"
#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/batch_scheduler.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_queue.hpp"
#include "actors/segment/segment_run.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

struct DispatcherPlan {
    DispatchOptions options = {};
    std::optional<StageId> draft = {};  // whom `Sequential` and `Lockstep` wait for
    bool holds_runs_back = false;       // lockstep with an exit
    AccountOptions account = {};
    std::vector<StageId> drafts = {};  // draft and correct: they get prices
    std::vector<StageId> exits = {};   // likewise, those of other segments
    std::optional<StageId> next = {};  // the segment behind this one
    std::vector<RetainedBy> retained = {};
};

class Dispatcher {
public:
    using Handles = Kinds<msg::Proposal, msg::Draw>;
    using Emits = Kinds<msg::Price, msg::Prefix>;

    /// Borrows the host.
    Dispatcher(SegmentHost& host, const DispatcherPlan& plan, std::int32_t kv_slots);

    Status handle(StageId from, const msg::Proposal& proposal);
    Status handle(StageId from, const msg::Draw& draw);
    /// From an exit of the same segment.
    void propose(const msg::Proposal& proposal);
    void peer_changed(StageId peer, PeerChange change);
    /// A verdict was applied to the state: `step` is what it did.
    void follow(const RequestState& state, const msg::Verdict& verdict, const TreeUpdate& step);
    /// Who else gets the prices of exits: an exit of this segment.
    void price_to(std::function<void(const msg::Price&)> exit) { own_exit_ = std::move(exit); }
    [[nodiscard]] const SpeculationAccount& account() const { return account_; }

    /// BatchScheduler::begin().
    void begin(const std::shared_ptr<RequestState>& state);

    /// Empty if no batch can start now.
    [[nodiscard]] std::vector<WaitingPart> next_parts();
    /// Counts and traces a run that enters the layers.
    void record(const SegmentRun& run) const;
    void hold_followed(SegmentRun& run);
    /// Whether the run stays here until release() returns it.
    [[nodiscard]] bool hold_back(const std::shared_ptr<SegmentRun>& run);
    /// The run that was held back, without its stale rows. nullptr: it still waits, or there is
    /// none.
    [[nodiscard]] std::shared_ptr<SegmentRun> release();
    [[nodiscard]] bool holds_a_run() const { return held_back_ != nullptr; }
    /// All attempts are cancelled: the formed batch and the run held back are dropped.
    void drop_work();

    [[nodiscard]] const BatchScheduler& scheduler() const { return scheduler_; }
    [[nodiscard]] BatchScheduler& scheduler() { return scheduler_; }

private:
    [[nodiscard]] std::optional<msg::Batch> form_batch();
    void send_prices(const msg::Route& about);
    void send_prefix(const CachedPrefix& prefix);
    [[nodiscard]] bool next_batch_follows(const SegmentRun& run, const RunPart& part) const;
    void count(const RequestState& state, const TreeUpdate& step, const Outcome& outcome) const;
    void count(const Outcome& outcome) const;

    SegmentHost& host_;
    std::optional<StageId> draft_;
    bool holds_runs_back_;
    std::vector<StageId> drafts_;
    std::vector<StageId> exits_;
    std::optional<StageId> next_;
    std::function<void(const msg::Price&)> own_exit_;
    std::uint32_t prices_ = 0;
    SpeculationAccount account_;
    BatchScheduler scheduler_;
    std::optional<msg::Batch> formed_;  // the next batch, formed before it can run
    std::shared_ptr<SegmentRun> held_back_;
};

}  // namespace paceline
