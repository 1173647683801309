// ShuffledWorld: actors on one thread, with every order of events that real processes could
// have, chosen by a seed.
//
// Each step delivers the oldest message of a random channel, ends a random job, or lets a timer
// fire; time passes by random amounts. Channels are small, so that "full" is met; verdicts and
// stops have reserved room. A job's work is done at once or just before its end, and its stage
// learns of the end later; so it may find in shared memory what no message has told its stage yet.
// The same seed gives the same order.
//
// Stages die and come back: lose() takes one away in the middle of whatever it does, join()
// starts its next incarnation. Each survivor learns of both in its own time, in the order in which
// it receives the conductor's posts; a channel belongs to one pair of incarnations. The conductor
// learns that a stage has joined when every survivor has.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/cancel_board.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/actor.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline::testing {

class ShuffledWorld {
public:
    explicit ShuffledWorld(std::uint64_t seed);
    ~ShuffledWorld();
    ShuffledWorld(const ShuffledWorld&) = delete;
    ShuffledWorld& operator=(const ShuffledWorld&) = delete;

    void add(StageId id, Actor& actor);
    /// These two learn of each other's losses.
    void link(StageId one, StageId other);
    void connect_tensors(StageId from, StageId to, std::uint32_t slots, std::size_t slot_bytes);
    void post(StageId to, control::Message message, StageId from = kConductor);
    void start();

    /// The stage dies. Its actor is not called any more, and is the caller's to destroy.
    void lose(StageId id);
    /// Its next incarnation starts, with a fresh actor.
    void join(StageId id, Actor& actor);
    [[nodiscard]] bool lives(StageId id) const;

    /// Until nothing can happen any more, `done` answers true, or an actor failed.
    void run(const std::function<bool()>& done);
    void run_steps(int steps);
    /// A data message out of nowhere, as if `from` had sent it.
    template <class M>
    void inject(StageId from, StageId to, const M& message) {
        push({from, epoch_of(from), to, epoch_of(to)}, static_cast<std::uint16_t>(M::kKind),
             msg::frame_of(message));
    }
    [[nodiscard]] bool tensors_all_free();
    [[nodiscard]] std::uint64_t counted(StageId id, Counter counter) const;
    [[nodiscard]] const std::array<std::uint64_t, kGauges>& gauges(StageId id);
    [[nodiscard]] std::uint64_t traced(StageId id, TraceKind kind) const;
    [[nodiscard]] Epoch epoch_of(StageId id) const;

    /// What stages said of peers that sent them what they must not. What follows is the test's
    /// part.
    struct Fault {
        StageId by;
        StageId peer;
        Epoch peer_epoch;
        Error error;
    };
    std::vector<Fault> faults;
    /// Whether a message finds no room; absent: it does if its channel is not full.
    std::function<bool(StageId from, StageId to, std::uint16_t kind)> no_room;
    std::optional<Error> failure;
    bool stopped = false;  // its loop was ended
    Micros now{0};
    std::size_t channel_room = 3;
    /// Sees every data message when it is delivered, if there is one.
    std::function<void(StageId to, std::uint16_t kind, std::span<const std::byte> bytes)> tap;
    /// A data message of which it answers true is lost on its way, without a trace.
    std::function<bool(StageId to, std::uint16_t kind)> loses;
    /// A stage of which it answers true reads no control message: its control socket is full.
    std::function<bool(StageId id)> leaves_control_unread;
    /// When nothing else can happen, time jumps to the next timer, but not further than this.
    Micros jump_max{std::numeric_limits<std::int32_t>::max()};

private:
    struct alignas(128) Line {
        std::byte bytes[128];
    };
    struct Pool {
        std::vector<Line> memory;
        std::optional<TensorProducer> producer;
        std::optional<TensorConsumer> consumer;
        std::uint32_t slots = 0;
    };
    struct TensorEdge {
        StageId from;
        StageId to;
        std::uint32_t slots;
        std::size_t slot_bytes;
    };
    using Edge = std::tuple<StageId, Epoch, StageId, Epoch>;  // of two incarnations
    struct QueuedMessage {
        std::uint16_t kind;
        std::vector<std::byte> bytes;
    };
    struct Job {
        std::function<JobOutcome()> work;
        std::function<void(JobOutcome)> done;
    };
    struct Control {
        StageId from;
        control::Message message;
    };
    struct PeerNews {
        StageId peer;
        Epoch epoch;
        PeerChange change;
    };
    struct Timer {
        StageId stage;
        Epoch epoch;
        std::function<void()> wake;
    };
    struct Stage;

    void make_pool(const TensorEdge& edge);
    [[nodiscard]] Pool* pool_of(const Edge& edge);
    [[nodiscard]] bool is_live(const Edge& edge) const;
    void push(const Edge& edge, std::uint16_t kind, std::span<const std::byte> bytes);
    void tell(StageId to, StageId peer, PeerChange change);
    void finish_joins();

    bool step();
    [[nodiscard]] bool can_be_read(const Edge& edge) const;
    void deliver(const Edge& edge);
    /// As a stage's loop: it has no channel any more with a peer that it has reported.
    void lose_faulty(const Fault& fault);
    void deliver_control(Stage& stage);
    static void end_job(Stage& stage);
    void tell_room(Stage& stage);
    void fire();

    std::mt19937_64 random_;
    std::map<StageId, Epoch> epochs_;  // absent: the first
    std::map<StageId, std::unique_ptr<Stage>> stages_;
    std::map<StageId, std::set<StageId>> links_;
    std::map<StageId, std::set<StageId>> joining_;  // and who is still to be rewired
    std::map<Edge, std::deque<QueuedMessage>> channels_;
    std::vector<TensorEdge> tensor_edges_;
    std::map<Edge, std::unique_ptr<Pool>> pools_;
    std::multimap<Micros, Timer> timers_;
    std::map<RequestId, std::atomic<std::uint64_t>> words_;
    std::map<RequestId, WatermarkCell> watermarks_;
    std::map<std::pair<StageId, Counter>, std::uint64_t> counters_;
    std::map<StageId, std::array<std::uint64_t, kGauges>> gauges_;
    std::map<std::pair<StageId, TraceKind>, std::uint64_t> traces_;
    int idle_rounds_ = 0;
};

}  // namespace paceline::testing
