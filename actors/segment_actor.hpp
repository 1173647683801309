// SegmentActor: one link of the target's chain, layers [first, last) of it.
// Receives: Begin, Wave (from the segment before), Proposal (the first one), Verdict, Stop.
// Sends: Wave (to the segment after), Verdict (the last one, to everyone).
//
// The first segment is also the dispatcher (dispatcher.hpp): it names nodes and KV slots, forms
// waves and embeds tokens. The last one is also the judge (final_verify.hpp). With one segment
// it is both. What goes through the layers is a queue of waves, one at a time:
//
//      wave arrives or is formed        a tensor slot is free
//   ---------------------------> [Queued] ----------------> [Running]   (a submitted job)
//                                   |                           |
//                  its rows are     |          job done         |  request stopped:
//                  all dead, or     |     +---------------------+  job cancelled
//                  the attempt old  v     v                     v
//                               [Dropped] [Passed on or judged] [Dropped]
//
// The loss of another segment makes every attempt known here void (on_peer): its work is dropped,
// and a Begin with a higher attempt follows when the chain is whole again. The loss of the draft
// changes no attempt.
//
// Every segment applies the same waves and verdicts to its own token tree, so all name the same
// slots. Waves keep their order; a verdict is applied as soon as it comes.
// Threads: all calls come from the stage's loop; the job touches only what its Running wave
// owns, the backend, and parts of the request's text and slot table that no longer change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/dispatcher.hpp"
#include "actors/final_verify.hpp"
#include "actors/inbox_gate.hpp"
#include "actors/message_checks.hpp"
#include "actors/outbox.hpp"
#include "actors/request_state.hpp"
#include "ipc/base/result.hpp"
#include "ipc/messages.hpp"
#include "ipc/tensor_pool.hpp"
#include "model/backend.hpp"
#include "runtime/actor.hpp"

namespace paceline {

/// Where a segment stands, and whom it talks to.
struct SegmentPlan {
    int index = 1;  // 1 .. count; 1 dispatches, count judges
    int count = 1;
    std::optional<StageId> previous;  // absent for the first segment
    std::optional<StageId> next;      // absent for the last
    std::optional<StageId> draft;     // absent: nobody proposes; its loss changes no attempt
    StageId judge;                    // the last segment: whose verdicts count
    std::vector<StageId> verdict_to;  // the last segment: everyone who follows (not itself)
    DispatchOptions dispatch;         // read by the first segment
    VerifyOptions verify;             // read by the last segment
};

struct SegmentFigures {
    std::uint64_t waves = 0;  // verify waves run through the layers
    std::uint64_t rows = 0;   // their rows
    std::uint64_t prefill_rows = 0;
    std::uint64_t dropped_waves = 0;  // arrived stale, or dead, or were cancelled
};

class SegmentActor final : public Actor {
public:
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

    [[nodiscard]] const SegmentFigures& figures() const { return figures_; }
    /// The first segment's dispatcher, for figures and tests; nullptr elsewhere.
    [[nodiscard]] const Dispatcher* dispatcher() const { return dispatcher_.get(); }

private:
    struct Run;  // one wave inside the layers

    Status begin(const control::Begin& begin);
    [[nodiscard]] bool must_wait(RequestId id, const Request& request) const;
    Status begin_waiting();
    [[nodiscard]] Status check_reuse(RequestId id, const Request& request) const;
    bool forget_oldest();
    Status open(const control::Begin& begin, Request request);
    Status receive(StageId from, std::uint16_t kind, std::span<const std::byte> bytes);
    Status receive_due();
    Result<Age> admit(StageId from,
                      std::uint16_t kind,
                      const msg::Route& route,
                      std::span<const std::byte> bytes);
    Status receive_proposal(StageId from, std::span<const std::byte> bytes);
    Status receive_wave(StageId from, std::span<const std::byte> bytes);
    Status receive_verdict(StageId from, std::span<const std::byte> bytes);
    Status receive_stop(StageId from, std::span<const std::byte> bytes);
    Status apply(RequestState& state, const msg::Verdict& verdict);
    Status void_attempts();
    void connect_tensors();

    Status advance();
    [[nodiscard]] bool channels_free();
    [[nodiscard]] bool queue_head_ready();
    void wake_when_due();
    Status start(const std::shared_ptr<RequestState>& state, const msg::Wave& wave);
    [[nodiscard]] bool alive(const RequestState& state, const msg::Wave& wave) const;
    void record(const Run& run);
    Status place_hidden(Run& run, const msg::Wave& arrived);
    void build_rows(Run& run) const;
    void finish(const std::shared_ptr<Run>& run, JobOutcome outcome);
    void pass_on(const Run& run);
    Status announce(const Run& run);
    void drop(const msg::Wave& wave);
    void show_gauges();
    void report(const Status& status);
    [[nodiscard]] std::shared_ptr<RequestState> find(const msg::Route& route) const;
    [[nodiscard]] MessageLimits limits() const;
    [[nodiscard]] bool first() const { return plan_.index == 1; }
    [[nodiscard]] bool last() const { return plan_.index == plan_.count; }

    StageContext* context_ = nullptr;
    TensorProducer* out_ = nullptr;    // to the next segment, if there is one and it is not lost
    TensorConsumer* in_ = nullptr;     // from the one before, likewise
    std::optional<PoolRef> out_slot_;  // acquired, for the next wave to be passed on
    SegmentPlan plan_;
    Backend& backend_;
    std::unique_ptr<Dispatcher> dispatcher_;  // first segment only
    std::unique_ptr<FinalVerify> verify_;     // last segment only
    std::map<RequestId, std::shared_ptr<RequestState>> requests_;
    std::deque<RequestId> begun_;  // those of requests_; the latest is the last
    std::map<RequestId, control::Begin> waiting_begins_;  // see must_wait()
    std::deque<msg::Wave> queue_;
    std::shared_ptr<Run> running_;
    std::optional<Micros> wake_at_;  // the timer that is set
    std::vector<float> hidden_;      // [rows, dim]: the last segment's, whose result goes nowhere
    std::optional<Outbox> outbox_;
    InboxGate gate_;
    SegmentFigures figures_;
};

}  // namespace paceline
