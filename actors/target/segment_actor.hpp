// SegmentActor: one link of the target's chain, layers [first, last) of it.
// Receives: Begin, Wave (from the segment before), Proposal (the first one), Verdict, Stop.
// Sends: Wave (to the segment after), Verdict (the last one, to everyone).
//
// The first segment is also the dispatcher (dispatcher.hpp): it names nodes and KV slots, forms
// waves and embeds tokens. The last one is also the judge (final_verify.hpp). With one segment
// it is both. What goes through the layers comes in waves of parts, a part per request; the parts
// wait in a queue (segment_queue.hpp), and a run takes as many as fit:
//
//      wave arrives or is formed        a tensor slot is free
//   ---------------------------> [Queued] ----------------> [Running]   (a submitted job)
//                                   |                           |
//                  its rows are     |          job done         |  all its requests stopped:
//                  all dead, or     |     +---------------------+  job cancelled
//                  the attempt old  v     v                     v
//                               [Dropped] [Passed on or judged] [Dropped]
//                                                  |
//                                                  v   with an exit (early_verify.hpp)
//                                              [Looked at]   (a second job: adapter, head and
//                                                             candidates)
//
// Rows that die meanwhile (fate_watch.hpp, or a verdict) are left out of what is passed on.
//
// The loss of another segment makes every attempt known here void (on_peer): its work is dropped,
// and a Begin with a higher attempt follows when the chain is whole again. The loss of the draft
// changes no attempt.
//
// Every segment applies the same waves and verdicts to its own token tree, so all name the same
// slots. Waves keep their order; a verdict is applied as soon as it comes.
// Threads: all calls come from the stage's loop; a job touches only what its run
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

#include "actors/protocol/inbox_gate.hpp"
#include "actors/protocol/message_checks.hpp"
#include "actors/protocol/outbox.hpp"
#include "actors/protocol/request_state.hpp"
#include "actors/target/dispatcher.hpp"
#include "actors/target/early_verify.hpp"
#include "actors/target/exit_options.hpp"
#include "actors/target/final_verify.hpp"
#include "actors/target/segment_queue.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// Where a segment stands, and whom it talks to.
struct SegmentPlan {
    int index = 1;  // 1 .. count; 1 dispatches, count judges
    int count = 1;
    std::optional<StageId> previous;  // absent for the first segment
    std::optional<StageId> next;      // absent for the last
    std::optional<StageId> draft;     // whom `Turns` and `Lockstep` wait for; absent: nobody
    std::vector<StageId> hinters;     // draft and correct: their loss changes no attempt
    StageId judge;                    // the last segment: whose verdicts count
    std::vector<StageId> verdict_to;  // the last segment: everyone who follows (not itself)
    DispatchOptions dispatch;         // read by the first segment
    VerifyOptions verify;             // read by the last segment
    std::optional<ExitOptions> exit;  // what happens at this segment's end besides
    StageId first_segment;            // who gets what the exit proposes; read elsewhere than there
    Micros hold_limit{200'000};       // held parts that wait for longer than this run anyway
};

struct SegmentFigures {
    std::uint64_t waves = 0;  // runs through the layers with verify rows
    std::uint64_t rows = 0;   // their rows
    std::uint64_t prefill_rows = 0;
    std::uint64_t dropped_parts = 0;  // arrived stale, or dead, or were cancelled
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
    struct Part;  // one request in a run
    struct Run;   // parts inside the layers
    struct Look;  // what an exit looks at
    struct Priced {
        Micros took;
        Micros ended;
    };

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
    void count_outcome(const RequestState& state, const TreeStep& step, const Outcome& outcome);
    void count_outcome(const Outcome& outcome);
    [[nodiscard]] std::optional<msg::Wave> form_wave();
    Status void_attempts();
    void connect_tensors();

    [[nodiscard]] Result<WaitingPart> split(const msg::Wave& wave,
                                            std::uint32_t index,
                                            std::uint32_t first_row,
                                            const std::shared_ptr<TensorShare>& tensor);

    Status advance();
    [[nodiscard]] bool busy() const { return running_ || looking_ || parked_; }
    [[nodiscard]] bool channels_free();
    [[nodiscard]] SegmentQueue::Rules queue_rules();
    [[nodiscard]] Result<SegmentQueue::Turn> turn_of(WaitingPart& part);
    [[nodiscard]] Result<std::vector<WaitingPart>> next_parts();
    void wake_when_due();
    Status start(std::vector<WaitingPart> parts);
    Status collect(Run& run, const std::vector<WaitingPart>& parts);
    Status place_rows(Run& run, Part& part, const WaitingPart& waiting);
    [[nodiscard]] Status check_roots(const Run& run) const;
    void build_rows(const Run& run, std::vector<Row>& rows, std::vector<KvSlot>& path_slots) const;
    [[nodiscard]] ExitPart ask_exit(const Part& part, std::span<const msg::WaveRow> rows) const;
    void watch(Run& run);
    void prepare(Run& run);
    void ask_for_tokens(Run& run) const;
    [[nodiscard]] RunOutcome run_rows(Run& run);
    void submit(const std::shared_ptr<Run>& run);
    void record(const Run& run);
    [[nodiscard]] bool alive(const RequestState& state, std::span<const msg::WaveRow> rows) const;
    [[nodiscard]] bool moot(const Part& part) const;
    void cancel_if_moot();

    void finish(const std::shared_ptr<Run>& run, JobOutcome outcome);
    void leave_out_dead(Run& run, JobOutcome outcome);
    void keep(Run& run, const std::vector<bool>& kept);
    Status go_on(const std::shared_ptr<Run>& run);
    void hold_if_followed(Run& run);
    void unpark();
    void pass_on(const Run& run);
    Status announce(Run& run);
    void send_verdict(const msg::Verdict& verdict);
    void note_wave(const Run& run);
    void price_look(Micros now);
    void look_at(const Run& run, Look& look) const;
    void start_look(const std::shared_ptr<Look>& look);
    void finish_look(const std::shared_ptr<Look>& look);
    [[nodiscard]] bool is_gone(const RequestState& state) const;
    bool tell(const ExitPart& part);
    bool propose(msg::Proposal proposal);
    void drop(WaitingPart& part);
    void show_gauges();
    void report(const Status& status);
    [[nodiscard]] std::shared_ptr<RequestState> find(RequestId request, Attempt attempt) const;
    [[nodiscard]] bool is_hinter(StageId peer) const;
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
    std::unique_ptr<EarlyVerify> early_;      // with an exit only
    std::map<RequestId, std::shared_ptr<RequestState>> requests_;
    std::deque<RequestId> begun_;  // those of requests_; the latest is the last
    std::map<RequestId, control::Begin> waiting_begins_;  // see must_wait()
    SegmentQueue queue_;
    std::optional<msg::Wave> formed_;  // first segment: the next wave, formed ahead of its turn
    std::shared_ptr<Run> running_;
    std::shared_ptr<Run> parked_;    // lockstep: through the layers, not passed on yet
    std::shared_ptr<Look> looking_;  // the exit's job
    std::optional<Priced> priced_;   // the exit's last look, until it is known who waited for it
    double wave_us_ = 0.0;           // what a wave takes in all segments, by this one's runs
    std::optional<Micros> wake_at_;  // the timer that is set
    std::vector<float> hidden_;      // [rows, dim]: the last segment's, whose result goes nowhere
    std::optional<Outbox> outbox_;
    InboxGate gate_;
    SegmentFigures figures_;
};

}  // namespace paceline
