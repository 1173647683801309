// Supervisor: starts, watches, restarts and ends the stages of a pipeline.
//
//     auto supervisor = Supervisor::create(options);
//     supervisor->start(processes)                // spawn all, hand out assignments
//     auto hellos = supervisor->await_hellos();  // all loaded; the caller compares them
//     auto wiring = supervisor->wire(edges, spin_micros);  // channels out, all Ready
//     StageLoop loop(std::move(wiring), *supervisor, {}); loop.add(kConductor, conductor);
//     loop.run();
//     supervisor->shutdown();                    // or the destructor, at once
//
// Every wait is on all of {each stage's process descriptor, each control socket, the deadline,
// signals} at once. Until wire() has returned, a stage that dies or reports Failed ends the run
// with its exit report. After it, recovery.hpp decides: the supervisor closes the channels of a
// lost stage, starts the next incarnation, connects it to the others, and informs the conductor's
// actor through the loop (control_port.hpp) of both.
//
// A stage is suspected after: a closed control socket, Failed, a channel that a peer found broken,
// a passed deadline in its telemetry block (stage_telemetry.hpp), a process that was stopped for
// too long. The offer of a device edge's consumer (tensor_link.hpp) is passed on to the producer if
// both incarnations are still current, and dropped otherwise; the supervisor does not read it.
//
// Threads: create, use and destroy on one thread; that thread forks the children. It maps only
// the conductor's own channels, so a crash of a stage cannot corrupt it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/wire/control.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/loop/process_spec.hpp"
#include "runtime/loop/wiring.hpp"
#include "runtime/observe/stage_telemetry.hpp"
#include "runtime/parent/node_agent.hpp"
#include "runtime/parent/recovery.hpp"

namespace paceline {

struct SupervisorOptions {
    std::chrono::milliseconds start_limit{120'000};  // from start() until all said Hello, and
                                                     // again from wire() until all are Ready
    std::chrono::milliseconds shutdown_grace{2'000};
    RestartRules restarts;  // its start_limit is taken from above
    /// Added to the expected time of an activity: a stage that takes longer hangs. 0: not limited.
    std::chrono::milliseconds hang_limit{10'000};
    std::chrono::milliseconds stop_grace{5'000};  // a stopped process is waited for this long
    /// A stage fails if a link is not open within this time after it got the edge. 0: not limited.
    std::chrono::milliseconds link_limit{30'000};
    WiringPlan::Checksums checksums = WiringPlan::Checksums::HeadersOnly;
    std::uint32_t trace_events = kTraceEventsDefault;  // of each process; 0: no trace
    std::vector<std::string> command;  // of every child; empty: /proc/self/exe stage
    /// Called for each line that a stage writes. Empty: the lines are only kept as last words.
    std::function<void(std::string_view stage, std::string_view line)> on_log;
    /// Called with one sentence whenever a stage is lost, comes back or is given up.
    std::function<void(const std::string& sentence)> on_news;
    bool catch_signals = true;  // SIGINT and SIGTERM end the run in good order
    /// The agent of all stages. Empty: all of them run on this machine (local_node.hpp).
    std::function<Result<std::unique_ptr<NodeAgent>>(NodeEvents)> make_node;
};

/// The telemetry block of one incarnation, also after its death.
struct StageRecord {
    StageId id;
    Epoch epoch;
    std::string name;
    StageTelemetryView telemetry;
};

class Supervisor final : public ControlPort {
public:
    [[nodiscard]] static Result<std::unique_ptr<Supervisor>> create(SupervisorOptions options);
    ~Supervisor() override;  // kills and reaps whatever is left

    /// Of the stages; without the conductor.
    [[nodiscard]] Status start(std::span<const ProcessSpec> processes);
    /// In the order of the processes given to start().
    [[nodiscard]] Result<std::vector<control::Hello>> await_hellos();
    /// Makes the channels, sends each stage its end, waits until all are Ready and returns the
    /// conductor's own end. `spin_micros` goes to every stage that shares no core; the
    /// conductor itself never spins.
    [[nodiscard]] Result<Wiring> wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros);

    /// Orderly end: Shutdown to all, wait for them, kill what remains after the grace time.
    /// An error if one of them ended badly that was not being replaced anyway.
    [[nodiscard]] Status shutdown();

    // ControlPort, for the loop of the conductor's actor.
    [[nodiscard]] Status send(Envelope envelope, const control::Message& message) override;
    [[nodiscard]] Status poll(const Deliver& deliver) override;
    [[nodiscard]] Status report_fault(StageId peer, Epoch peer_epoch, const Error& error) override;
    void excuse_loss(StageId peer) override;
    [[nodiscard]] Status wired(StageId peer, Epoch peer_epoch) override;

    /// Of the incarnations that live now; 0 for one that is being replaced.
    [[nodiscard]] std::vector<pid_t> pids() const;
    [[nodiscard]] StageHealth health_of(StageId id) const;
    /// Why stages run on any core although they were given some (an errno of sched_setaffinity); 0
    /// if they were pinned.
    [[nodiscard]] int pin_error() const;
    /// The conductor's telemetry block, then the incarnations in the order in which they were
    /// started, the oldest dead ones left out.
    [[nodiscard]] std::vector<StageRecord> records() const;
    /// Brings the records of stages of other machines up to date, which are copies some
    /// milliseconds old. Waits for these machines, a second at most.
    void refresh_records();

private:
    class Impl;
    explicit Supervisor(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace paceline
