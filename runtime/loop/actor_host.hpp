// ActorHost: the actors of one process, with their inboxes, channels among them
// (local_channels.hpp), timers (timer_queue.hpp) and jobs (job_queue.hpp).
//
// The part of a loop that is the same in every environment. stage_loop.cpp adds rings, doorbell and
// control socket, simulation/ a virtual clock and costs, and the one-process environment of the
// tests only a clock. One thread; never waits.
// Every dispatch runs one handler to completion; a job's completion is a message like any other.
//
// Jobs of all actors run one at a time, in the order of submission. Before the next one starts all
// messages in the inboxes are handled: the completion of the last job, messages that its handler
// sent to actors of this process, those that follow from them, and so on (a loop runs a job only
// while has_mail() is false). This cannot starve jobs: channels are bounded, and actors send only
// because of a job or of a message from another process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/transport/tensor_link.hpp"
#include "runtime/loop/actor.hpp"
#include "runtime/loop/job_queue.hpp"
#include "runtime/loop/local_channels.hpp"
#include "runtime/loop/timer_queue.hpp"
#include "runtime/loop/wiring.hpp"

namespace paceline {

/// The environment of a host. Implemented by the loop that owns it. `self` and `from` are
/// actors of the host.
struct HostEnvironment {
    HostEnvironment() = default;
    HostEnvironment(const HostEnvironment&) = delete;
    HostEnvironment& operator=(const HostEnvironment&) = delete;
    virtual ~HostEnvironment() = default;

    [[nodiscard]] virtual Micros now() const = 0;
    /// To an address that this host does not host; the same for the pools.
    [[nodiscard]] virtual Push send(StageId from,
                                    StageId to,
                                    std::uint16_t kind,
                                    std::span<const std::byte> bytes) = 0;
    virtual void post(StageId from, StageId to, const control::Message& message) = 0;
    [[nodiscard]] virtual Epoch epoch_of(StageId self, StageId peer) const = 0;
    virtual void report_fault(StageId self, StageId peer, Error error) = 0;
    [[nodiscard]] virtual TensorProducer* tensors_to(StageId self, StageId to) = 0;
    [[nodiscard]] virtual TensorConsumer* tensors_from(StageId self, StageId from) = 0;
    [[nodiscard]] virtual std::uint64_t random() = 0;
    /// `event` is complete but for its time.
    virtual void trace(TraceEvent event) = 0;
    virtual void count(Counter counter, std::uint64_t add) = 0;
    virtual void set(Gauge gauge, std::uint64_t value) = 0;
    [[nodiscard]] virtual const std::atomic<std::uint64_t>* cancel_word(RequestId request) = 0;
    virtual void cancel_before(RequestId request, Attempt valid) = 0;
    [[nodiscard]] virtual const WatermarkCell* watermark_cell(RequestId request) = 0;
    virtual void publish_watermark(RequestId request,
                                   Attempt attempt,
                                   Position position,
                                   TokenId token) = 0;
    virtual void excuse_loss([[maybe_unused]] StageId stage) {}
};

class ActorHost {
public:
    /// Whether a channel between two hosted actors must have been connected before it is used.
    using Channels = LocalChannels::Policy;

    ActorHost(HostEnvironment& environment, Channels channels);
    ActorHost(const ActorHost&) = delete;
    ActorHost& operator=(const ActorHost&) = delete;
    ~ActorHost();

    void add(StageId id, Epoch epoch, Actor& actor);
    [[nodiscard]] bool hosts(StageId id) const { return find(id) != nullptr; }
    /// A channel between two hosted actors. Errors: as LocalChannels::connect().
    [[nodiscard]] Status connect(const EdgeSpec& spec, TensorDevice* device = nullptr);
    /// Calls on_start of all, in the order in which they were added.
    void start();

    // Dispatch of what other processes sent, at once.
    void handle(StageId to, StageId from, std::uint16_t kind, std::span<const std::byte> bytes);
    void control(StageId to, StageId from, const control::Message& message);
    void room(StageId who, StageId to);
    /// Tells every actor here.
    void peer(StageId peer, PeerChange change);
    /// As control(), but after what waits in the actor's inbox.
    void queue_control(StageId to, StageId from, control::Message message);

    // Steps of an iteration. Each says whether it dispatched anything.
    bool deliver_round();  // one message to each actor that has one
    bool call_rooms();     // on_room of those whose local channel has room again
    bool run_timers();     // that are due
    bool run_job();        // the first; its completion goes into the inbox
    [[nodiscard]] std::optional<Micros> next_timer() const { return timers_.next(); }
    [[nodiscard]] const JobQueue& jobs() const { return jobs_; }
    [[nodiscard]] bool has_mail() const;

    /// An actor stopped or failed: nothing is dispatched any more.
    [[nodiscard]] bool ended() const { return ended_; }
    [[nodiscard]] Status outcome() const { return outcome_; }
    /// `status` is the outcome if it is an error and the first one.
    void end_on_error(const Status& status);
    void stop() { ended_ = true; }

private:
    class HostedContext;
    struct DataMessage {
        LocalChannel* channel;
        std::uint16_t kind;
        std::vector<std::byte> bytes;
    };
    struct ControlMessage {
        StageId from;
        control::Message message;
    };
    struct Completion {
        JobOutcome outcome;
        std::function<void(JobOutcome)> done;
    };
    using Mail = std::variant<DataMessage, ControlMessage, Completion>;
    struct Hosted {
        StageId id;
        Epoch epoch;
        Actor* actor;
        std::unique_ptr<HostedContext> context;
        std::deque<Mail> inbox;  // bounded by the channels, one Begin each and the jobs
    };

    [[nodiscard]] Hosted* find(StageId id) const;
    void deliver(Hosted& hosted, Mail mail);
    /// Runs one handler or job; if memory runs out the loop ends with an error.
    template <class Call>
    void guarded(Call call);

    HostEnvironment& environment_;
    std::vector<std::unique_ptr<Hosted>> hosted_;
    LocalChannels channels_;
    TimerQueue timers_;
    JobQueue jobs_;
    bool started_ = false;
    bool ended_ = false;
    Status outcome_;
};

}  // namespace paceline
