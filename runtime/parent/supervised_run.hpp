// SupervisedRun: the state of a run, which the parts of the supervisor share, and what several of
// them do to a stage.
//
// Phases:   [Starting] --wire() has returned--> [Running] --shutdown()--> [Ending]
// While Starting any death ends the run; while Running recovery.hpp decides; while Ending the
// supervisor waits for the stages to end.
// The parts: Supervisor::Impl (supervisor.cpp) starts and ends the stages, StageEvents
// (stage_events.hpp) handles what the node agent reports, RecoveryCommands (recovery_commands.hpp)
// executes what recovery decides, HangCheck (hang_check.hpp) reads the telemetry blocks.
// Threads: the supervisor's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/parent/conductor_memory.hpp"
#include "runtime/parent/node_agent.hpp"
#include "runtime/parent/run_end.hpp"
#include "runtime/parent/supervised_stages.hpp"
#include "runtime/parent/supervisor.hpp"

namespace paceline {

/// CLOCK_MONOTONIC, as the stages' deadlines and as Recovery counts it.
[[nodiscard]] StageWatch::Nanos monotonic_now();
[[nodiscard]] Micros micros_now();

struct SupervisedRun {
    enum class Phase : std::uint8_t { Starting, Running, Ending };

    explicit SupervisedRun(SupervisorOptions with) : options{std::move(with)} {}
    SupervisedRun(const SupervisedRun&) = delete;
    SupervisedRun& operator=(const SupervisedRun&) = delete;

    /// Starts the next incarnation of `stage`, whose epoch is set.
    [[nodiscard]] Status start(SupervisedStage& stage);
    [[nodiscard]] Status send_wire(SupervisedStage& stage);
    [[nodiscard]] Status send_to(SupervisedStage& stage,
                                 const control::Message& message,
                                 std::span<const int> files = {},
                                 Envelope envelope = {});
    /// Recovery decides now: the run has begun and is not ending.
    [[nodiscard]] bool is_running() const { return recovery && phase == Phase::Running; }
    /// `peer` broke the layout of a channel or sent an invalid message. Ignored unless
    /// is_running().
    void report_fault(StageId peer, Epoch peer_epoch, const Error& error);
    /// Why the run has to end: a signal, or, while Starting, a stage that failed.
    [[nodiscard]] Status trouble();
    void news(const std::string& sentence) const {
        if (options.on_news) options.on_news(sentence);
    }

    SupervisorOptions options;
    Phase phase = Phase::Starting;
    SupervisedStages stages;
    std::optional<WiringPlan> plan;
    std::optional<Recovery> recovery;  // once the run has begun
    std::deque<PortEvent> events;      // for the loop
    ConductorMemory memory;
    std::vector<StageRecord> records;
    RunEnd end;
    int pin_error = 0;                // of the last stage that could not be pinned
    std::unique_ptr<NodeAgent> node;  // last: its events end before what they touch
};

}  // namespace paceline
