// SegmentActor: one segment of the target's chain: its layers, the queue in front of them and the run
// inside them. Roles that are attached at construction do the rest:
//
//     Dispatcher    the first segment (no segment before it): what the layers work on next
//     EarlyVerify   a segment with an exit: proposals ahead of the verdict
//     FinalVerify   the last segment (no segment after it): the verdicts
//     ResidualTap   a segment beside a draft that chooses its layers by them
//     SelfDraft     a first segment that drafts for itself: jobs between the runs
//
// Handles: Begin, Batch (from the segment before), Verdict (from the last one), Stop; a Dispatcher also
// Proposal.   Emits: Batch (to the segment after); its roles what they declare.
//
// What goes through the layers comes in batches of parts, a part per request; the parts wait in a queue
// (segment_queue.hpp), and a run takes as many as fit:
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
// Errors: an invalid message is reported as the fault of its sender, which is replaced (sender_fault.hpp):
// when the message arrives, or for a batch's rows when they join the tree or enter a run. An invalid Begin,
// and errors of this segment, end this stage.
// Threads: all calls come from the stage's loop; a job touches only what its run
// owns, the backend, the roles as they say, and parts of the request's text and slot table that no
// longer change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/protocol/message_kinds.hpp"
#include "actors/segment/dispatcher.hpp"
#include "actors/segment/early_verify.hpp"
#include "actors/segment/exit_options.hpp"
#include "actors/segment/final_verify.hpp"
#include "actors/segment/residual_tap.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_queue.hpp"
#include "actors/segment/segment_run.hpp"
#include "actors/segment/self_draft.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// A segment's place in the target, its peers, and the options of its roles.
struct SegmentPlan {
    int count = 1;                     // segments of the target
    std::optional<StageId> previous;   // absent for the first segment: a Dispatcher is attached
    std::optional<StageId> next;       // absent for the last: FinalVerify is attached
    std::optional<StageId> draft;      // whom `Sequential` and `Lockstep` wait for
    std::vector<StageId> speculative;  // draft and correct: their loss changes no attempt
    StageId verifier;                  // the last segment: whose verdicts count
    std::vector<StageId> verdict_to;   // the last segment: everyone who follows (not itself)
    DispatchOptions dispatch;         // read by the first segment; how large a batch may be, by all
    VerifyOptions verify;             // read by the last segment
    std::optional<ExitOptions> exit;  // present: EarlyVerify is attached
    std::optional<TapOptions> tap;    // present: ResidualTap is attached
    std::optional<SelfDraftOptions> self_draft;  // of the first segment: SelfDraft is attached
    StageId first_segment;       // who gets what the exit proposes; read elsewhere than there
    Micros hold_limit{200'000};  // held parts that wait for longer than this run anyway
};

class SegmentActor final : public Actor {
public:
    using Handles = Kinds<msg::Batch, msg::Verdict, msg::Stop>;
    using Emits = Kinds<msg::Batch>;

    /// The backend is borrowed; it holds this segment's layers (and the head, if it is the last).
    SegmentActor(SegmentPlan plan, Backend& backend);
    ~SegmentActor() override;
    SegmentActor(const SegmentActor&) = delete;
    SegmentActor& operator=(const SegmentActor&) = delete;

    void on_start(StageContext& context) override;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override;
    void on_control(StageId from, const control::Message& message) override;
    void on_room(StageId to) override;
    void on_peer(StageId peer, PeerChange change) override;

    Status handle(StageId from, const msg::Batch& batch);
    Status handle(StageId from, const msg::Verdict& verdict);
    Status handle(StageId from, const msg::Stop& stop);

    /// The first segment's scheduler, for tests; nullptr elsewhere.
    [[nodiscard]] const BatchScheduler* scheduler() const {
        return dispatcher_ ? &dispatcher_->scheduler() : nullptr;
    }

private:
    using RunPtr = std::shared_ptr<SegmentRun>;

    // The inbox: segment_actor.cpp
    void attach_roles();
    void connect_tensors();
    Status begin(const control::Begin& begin);
    Status begin_waiting();
    Status open(const control::Begin& begin, Request request);
    Status apply(RequestState& state, const msg::Verdict& verdict);
    Status drop_cancelled();
    [[nodiscard]] Result<WaitingPart> split(const msg::Batch& batch,
                                            std::uint32_t index,
                                            std::uint32_t first_row,
                                            const std::shared_ptr<TensorShare>& tensor);
    [[nodiscard]] Result<std::shared_ptr<RowMemory>> copy_of(const WaitingPart& part);
    void report(const Status& status);

    // The way through the layers: segment_work.cpp
    Status advance();
    [[nodiscard]] Status blame_previous(const Error& error);
    [[nodiscard]] bool busy() const;
    [[nodiscard]] bool acquire_slot();
    [[nodiscard]] Result<std::vector<WaitingPart>> next_parts();
    [[nodiscard]] SegmentQueue::Readiness readiness_of(const WaitingPart& part) const;
    void wake_when_due();
    [[nodiscard]] bool submit_draft();
    Status start(std::span<const WaitingPart> parts);
    [[nodiscard]] bool works_apart(const SegmentRun& run) const;
    void submit(const RunPtr& run);
    void record(const SegmentRun& run);
    void cancel_if_stale();
    void finish(const RunPtr& run, JobOutcome outcome);
    Status go_on(const RunPtr& run);
    Status announce(const SegmentRun& run);
    void pass_on(const SegmentRun& run);
    void submit_exit();
    void show_gauges();

    SegmentPlan plan_;
    Backend& backend_;
    SegmentHost host_;
    std::optional<Dispatcher> dispatcher_;
    std::optional<EarlyVerify> early_;
    std::optional<FinalVerify> final_;
    std::optional<ResidualTap> tap_;
    std::optional<SelfDraft> self_;
    TensorConsumer* in_ = nullptr;     // from the segment before, if it is there and not lost
    TensorProducer* out_ = nullptr;    // to the segment after, likewise
    std::optional<PoolRef> out_slot_;  // acquired, for the next batch to be passed on
    std::map<RequestId, control::Begin> waiting_begins_;  // see SegmentRequests::must_wait()
    SegmentQueue queue_;
    RunPtr running_;
    RowMemory work_;                                  // see works_apart()
    std::vector<std::shared_ptr<RowMemory>> copies_;  // for held parts; used again
    std::optional<Micros> wake_at_;                   // the timer that is set
};

}  // namespace paceline
