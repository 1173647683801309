// SegmentActor: one segment of the target's chain: its requests, from Begin through verdicts to
// their end, and the connections to its peers. Its parts do the rest:
//
//     BatchIntake     batches of the segment before, until they can run
//     SegmentRunner   the layers: one job at a time
//     BatchOutlet     runs on their way to the next segment
//     SegmentRoles    what a first, a last, an exit's segment and others do beside
//
// Handles: Begin, Verdict (from the last segment), Stop, Prefix (from the segment before).
// Emits: Prefix, to the next segment; its parts and roles what they declare.
//
// What goes through the layers comes in batches of parts, a part per request; the parts wait in a
// queue (segment_queue.hpp), and a run takes as many as fit:
//
//    batch arrives or is formed         a tensor slot is free
//   --------------------------> [Queued] ----------------> [Running]   (a submitted job)
//                                  |                           |
//               its rows are stale |          job done         |  all rows are stale:
//               or its attempt old |     +---------------------+  job cancelled
//                                  v     v                     v
//                              [Dropped] [Passed on, verified] [Dropped]
//
// The loss of another segment cancels every attempt (on_peer): their work is dropped, and a Begin
// with a higher attempt follows when all segments are connected again. The loss of a speculative
// stage (draft, correct) changes no attempt.
//
// Every segment applies the same batches and verdicts to its own token tree, so all use the same
// slots. Batches keep their order; a verdict is applied as soon as it arrives.
//
// Errors: an invalid message is reported as the fault of its sender, which is replaced
// (sender_fault.hpp): when the message arrives, or for a batch's rows when they join the tree or
// enter a run. An invalid Begin, and errors of this segment, end this stage.
// Threads: all calls come from the stage's loop. What a job touches is named by its type: RunJob
// (run_job.hpp) for a run; SelfDraft::run() and EarlyVerify::evaluate() for the jobs of these
// roles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "actors/decoding/grammar/grammar_store.hpp"
#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/batch_intake.hpp"
#include "actors/segment/batch_outlet.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_plan.hpp"
#include "actors/segment/segment_roles.hpp"
#include "actors/segment/segment_runner.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

class SegmentActor final : public Actor {
public:
    using Handles = Kinds<msg::Verdict, msg::Stop, msg::Prefix>;
    using Emits = Kinds<msg::Prefix>;

    /// The backend is borrowed; it holds this segment's layers (and the head, if it is the last).
    SegmentActor(SegmentPlan plan, Backend& backend);
    SegmentActor(const SegmentActor&) = delete;
    SegmentActor& operator=(const SegmentActor&) = delete;

    void on_start(StageContext& context) override;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override;
    void on_control(StageId from, const control::Message& message) override;
    void on_room(StageId to) override;
    void on_peer(StageId peer, PeerChange change) override;

    Status handle(StageId from, const msg::Verdict& verdict);
    Status handle(StageId from, const msg::Stop& stop);
    Status handle(StageId from, const msg::Prefix& prefix);

    /// The first segment's scheduler, for tests; nullptr elsewhere.
    [[nodiscard]] const BatchScheduler* scheduler() const {
        return roles_.dispatcher ? &roles_.dispatcher->scheduler() : nullptr;
    }

private:
    void connect();
    /// One that must wait (SegmentRequests::must_wait()).
    struct WaitingBegin {
        control::Begin begin;
        BeginPayload spec;
    };
    Status begin(const control::Begin& begin);
    Status open_waiting(RequestId request);
    Status begin_waiting();
    Status open(const control::Begin& begin, BeginPayload spec);
    Status apply(RequestState& state, const msg::Verdict& verdict);
    Status drop_cancelled();
    void show_gauges();

    SegmentPlan plan_;
    Backend& backend_;
    SegmentHost host_;
    SegmentRoles roles_;
    BatchIntake intake_;
    BatchOutlet outlet_;
    SegmentRunner runner_;
    GrammarStore grammars_;  // of the last segment
    std::map<RequestId, WaitingBegin> waiting_begins_;
};

}  // namespace paceline
