// SimProcess: one incarnation of one process in a simulated world. The counterpart of
// stage_loop.cpp: it feeds a real ActorHost from channels, a control connection and a virtual
// clock, and takes virtual time for its jobs.
//
//                greeted            Wire: actors start, Ready
//   [Loading] ------------> [Waiting] -------------> [Running] ---------> [Ended]
//                                                   frozen, busy          crash, kill, Failed
//
// A frozen process does nothing and then continues where it was, even if it has been replaced.
// While a job runs no handler runs, unless the spec says so (handlers_during_jobs, as beside a GPU
// stream). One thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ipc/wire/cancel_board.hpp"
#include "runtime/loop/actor_host.hpp"
#include "runtime/parent/recovery.hpp"
#include "runtime/simulation/sim_channel.hpp"
#include "runtime/simulation/sim_core.hpp"
#include "runtime/simulation/sim_jobs.hpp"
#include "runtime/simulation/sim_timing.hpp"

namespace paceline {

/// The actors of one incarnation and what they own (backends, sources).
struct SimBody {
    SimBody() = default;
    SimBody(const SimBody&) = delete;
    SimBody& operator=(const SimBody&) = delete;
    virtual ~SimBody() = default;
    [[nodiscard]] virtual Actor& actor(StageId id) = 0;
};

struct SimProcessSpec {
    ProcessSpec process;  // cores and payload are not used here
    std::function<std::unique_ptr<SimBody>()> make;
    /// The kind of device. false: cores, on which a job occupies the loop, as in StageLoop:
    /// messages and timers wait until it has ended. true: a device beside the loop (a GPU):
    /// messages are handled during the time of a job, and the job's function is called at the end
    /// of that time, so it sees their effects. Jobs run one at a time either way.
    bool handlers_during_jobs = false;
    /// Of a device on which the jobs of other processes with this name run meanwhile
    /// (shared_device.hpp); empty: it has one of its own. Without faults and job limits alone.
    std::string device{};
    std::vector<EdgeSpec> local_edges{};  // between its own actors; the world fills them in
};

// ---- the control connection, conductor -> process ----

using SimChannels = std::vector<std::shared_ptr<SimChannel>>;

struct SimMail {
    StageId to;
    StageId from;
    control::Message message;
};
struct SimWire {
    SimChannels channels;
    std::vector<StageId> absent;
};
struct SimUnwire {
    std::vector<StageId> peers;
};
struct SimRewire {
    std::vector<StageId> peers;
    Epoch epoch;
    SimChannels channels;
};
/// To the conductor alone; at a stage a Rewire says it too.
struct SimJoined {
    std::vector<StageId> peers;
};
using SimMessage = std::variant<SimMail, SimWire, SimUnwire, SimRewire, SimJoined>;

// ---- and back ----

struct SimHello {};
struct SimReady {};
struct SimRewired {
    StageId peer;
    Epoch epoch;
};
struct SimFailed {
    Error error;
};
/// As control::EdgeFault: the peer has sent what it must not.
struct SimEdgeFault {
    StageId peer;
    Epoch epoch;
    Error error;
};
using SimReport = std::variant<SimHello, SimReady, SimRewired, SimFailed, SimEdgeFault, SimMail>;

class SimProcess;

/// What a process reaches in its world.
struct SimSite {
    SimSite(SimCore& the_core, SimTiming& the_timing) : core{the_core}, timing{the_timing} {}
    SimSite(const SimSite&) = delete;
    SimSite& operator=(const SimSite&) = delete;
    virtual ~SimSite() = default;

    [[nodiscard]] virtual SimProcess& process(std::uint32_t serial) = 0;
    /// The conductor's control message for an actor of a stage.
    virtual void post(StageId from, StageId to, const control::Message& message) = 0;
    /// StageContext::excuse_loss() of the conductor's actor.
    virtual void excuse_loss(StageId stage) = 0;
    /// The conductor's process has got an invalid message of this incarnation.
    virtual void report_fault(const SimEdgeFault& fault) = 0;
    /// `process` has ended by itself.
    virtual void ended(SimProcess& process) = 0;
    /// A job on a shared device begins, which takes so long alone; or it has ended.
    virtual void job_began(SimProcess& process, const JobLabel& label, SimTime alone) = 0;
    virtual void job_ended(SimProcess& process) = 0;

    SimCore& core;
    SimTiming& timing;
    std::array<CancelBoard::Word, kCancelLines> board{};  // one thread: atomic for the actors' type
    bool tracing = false;
    /// Half of the jobs of a process without handlers_during_jobs do their work at the start of
    /// their time instead of the end; the result must not depend on it. false: all do it at the
    /// end.
    bool jobs_may_run_early = true;
    /// Of jobs, beside what is expected of them; nothing: they have no limit.
    std::optional<Micros> hang_limit{};
    /// Sets after how many more allocations one fails (-1: none does), and answers what was set.
    std::int64_t (*allocations)(std::int64_t left) = nullptr;
};

/// No allocation fails while the world itself works inside of an actor's call.
class AllocationPause {
public:
    explicit AllocationPause(SimSite& site) : site_{site} {
        if (site_.allocations != nullptr) left_ = site_.allocations(-1);
    }
    ~AllocationPause() {
        if (site_.allocations != nullptr) site_.allocations(left_);
    }
    AllocationPause(const AllocationPause&) = delete;
    AllocationPause& operator=(const AllocationPause&) = delete;

private:
    SimSite& site_;
    std::int64_t left_ = -1;
};

[[nodiscard]] std::string describe_frame(std::uint16_t kind, std::span<const std::byte> bytes);

class SimProcess final : public HostEnvironment {
public:
    enum class Life : std::uint8_t { Loading, Waiting, Running, Ended };

    /// `before`: what earlier incarnations leave of their jobs.
    SimProcess(SimSite& site,
               const SimProcessSpec& spec,
               Epoch epoch,
               std::uint32_t serial,
               const JobRecords& before);
    ~SimProcess() override;

    // Life.
    /// It has loaded after so long.
    void load(SimTime takes);
    void loaded(std::uint64_t load);
    /// The first incarnations and the conductor are born wired.
    void run_at_once(SimWire wire);
    void die(const std::string& how);
    [[nodiscard]] Life life() const { return life_; }
    [[nodiscard]] bool ended() const { return life_ == Life::Ended; }
    /// Whether it has channels with this very incarnation.
    [[nodiscard]] bool wired_to(std::uint32_t serial) const;

    // The connection.
    void receive(SimMessage message);
    [[nodiscard]] SimReport take_report();

    // Events.
    void wake(SimTime at);
    void step(SimTime event_at);
    void job_done(std::uint64_t job);
    /// Its job ends then: others on its device have begun or ended.
    void move_job_end(SimTime at);
    void thaw();

    // Faults.
    void freeze(SimTime until);
    /// The same, and what its device does or it loads stands still as well, for `gap` more.
    void suspend(SimTime until, SimTime gap);
    [[nodiscard]] bool frozen() const { return site_.core.now < frozen_until_; }
    [[nodiscard]] std::uint64_t freezes() const { return freezes_; }
    void crash_after_sends(std::uint32_t sends) { sends_left_ = sends; }
    void fail_allocation(std::uint32_t nth) { allocation_fails_ = nth; }
    void slow_down(std::uint32_t factor, SimTime until);

    [[nodiscard]] StageId id() const { return spec_.process.id; }
    [[nodiscard]] const SimProcessSpec& spec() const { return spec_; }
    [[nodiscard]] Epoch epoch() const { return epoch_; }
    [[nodiscard]] std::uint32_t serial() const { return serial_; }
    [[nodiscard]] std::string title() const;
    [[nodiscard]] const std::string& exit_report() const { return exit_report_; }
    [[nodiscard]] bool failed_by_itself() const { return failed_by_itself_; }
    [[nodiscard]] SimBody* body() { return body_.get(); }
    [[nodiscard]] ActorHost& host() { return *host_; }
    /// What it shows of its jobs; nullptr where they have no limits.
    [[nodiscard]] const SimJobs* jobs() const { return jobs_ ? &*jobs_ : nullptr; }
    /// Its outgoing edges, for faults and for the search for leaks.
    [[nodiscard]] SimChannels channels_out() const;
    /// As a stage's telemetry has them; the runtime's own are not counted here but for Jobs and
    /// FramesStale.
    [[nodiscard]] const std::array<std::uint64_t, kCounters>& counters() const { return counters_; }
    [[nodiscard]] const std::array<std::uint64_t, kGauges>& gauges() const { return gauges_; }
    /// Time in jobs, which may take parts of a microsecond.
    [[nodiscard]] SimTime busy() const { return in_jobs_; }
    [[nodiscard]] const std::vector<TraceEvent>& events() const { return trace_; }

    // ---- HostEnvironment ----
    [[nodiscard]] Micros now() const override { return site_.core.micros(); }
    [[nodiscard]] Push send(StageId from,
                            StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override;
    void post(StageId from, StageId to, const control::Message& message) override;
    [[nodiscard]] Epoch epoch_of(StageId self, StageId peer) const override;
    void report_fault(StageId self, StageId peer, Error error) override;
    [[nodiscard]] TensorProducer* tensors_to(StageId self, StageId to) override;
    [[nodiscard]] TensorConsumer* tensors_from(StageId self, StageId from) override;
    [[nodiscard]] std::uint64_t random() override { return random_.next(); }
    void trace(TraceEvent event) override;
    void count(Counter counter, std::uint64_t add) override;
    void set(Gauge gauge, std::uint64_t value) override {
        gauges_[static_cast<std::size_t>(gauge)] = value;
    }
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId request) override;
    void cancel_before(RequestId request, Attempt valid) override;
    /// A job's work takes no time of its own, so nothing can happen during it.
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId /*request*/) override {
        return nullptr;
    }
    void publish_watermark(RequestId /*request*/,
                           Attempt /*attempt*/,
                           Position /*position*/,
                           TokenId /*token*/) override {}
    void excuse_loss(StageId stage) override { site_.excuse_loss(stage); }

private:
    struct Out {
        std::shared_ptr<SimChannel> channel;
        bool wants_room = false;
        bool wants_slot = false;
    };
    struct ControlMail {
        SimTime arrives;
        SimMessage message;
    };

    template <class Call>
    void guarded(Call call);
    template <class Text>
    void tell(Text text) {
        const AllocationPause pause{site_};
        site_.core.tell([&] { return title() + " " + text(); });
    }
    bool iterate();
    bool take_control();
    void take(SimMessage message);
    bool drain(SimChannel& channel);
    bool call_rooms();
    void start_job();
    bool must_wait_for_room();
    void tell_producers();
    void plan_wake();
    void report(SimReport report);
    void run_until_blocked();
    void start(SimWire wire);
    void lose(StageId peer);
    [[nodiscard]] bool is_faulty(StageId peer) const;
    bool lose_faulty();
    void close_channels(StageId peer);
    void add_channels(const SimChannels& channels);
    void bury_retired();
    [[nodiscard]] bool may_handle() const;

    SimSite& site_;
    const SimProcessSpec& spec_;
    Epoch epoch_;
    std::uint32_t serial_;
    SimRandom random_;
    Life life_ = Life::Loading;
    std::unique_ptr<SimBody> body_;
    std::unique_ptr<ActorHost> host_;

    std::vector<Out> out_;
    std::vector<std::shared_ptr<SimChannel>> in_;
    SimChannels retired_;  // closed, but jobs may still touch their tensors
    std::set<StageId> absent_;
    std::vector<SimEdgeFault> faulty_;  // found in this iteration
    std::deque<ControlMail> control_;
    SimTime control_last_{0};
    std::deque<SimReport> reports_;
    SimTime report_last_{0};

    SimTime wake_at_ = SimTime::max();
    bool busy_ = false;
    bool ran_early_ = false;
    std::uint64_t job_ = 0;
    SimTime job_began_{0};
    SimTime job_ends_{0};
    std::uint64_t load_ = 0;
    SimTime load_ends_{0};
    std::optional<SimJobs> jobs_;
    JobLabel label_;

    SimTime frozen_until_{0};
    std::uint64_t freezes_ = 0;
    std::optional<std::uint32_t> sends_left_;
    std::optional<std::uint32_t> allocation_fails_;
    bool doomed_ = false;  // it has crashed; the running handler still ends
    std::uint32_t slow_ = 1;
    SimTime slow_until_{0};
    std::string exit_report_;
    bool failed_by_itself_ = false;
    bool allocation_failed_ = false;
    std::array<std::uint64_t, kCounters> counters_{};
    std::array<std::uint64_t, kGauges> gauges_{};
    SimTime in_jobs_{0};
    std::vector<TraceEvent> trace_;
};

}  // namespace paceline
