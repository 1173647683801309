// SupervisedStages: the supervisor's table of stages, each with its newest incarnation.
//
// Stages are added while they are started for the first time and stay for the whole run; references
// are valid from reserve() on. Threads: the supervisor's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ipc/transport/doorbell.hpp"
#include "ipc/wire/control.hpp"
#include "runtime/observe/stage_telemetry.hpp"
#include "runtime/parent/node_agent.hpp"
#include "runtime/parent/stage_watch.hpp"
#include "runtime/parent/supervisor.hpp"

namespace paceline {

/// One incarnation of a stage: everything that its start begins anew.
struct StageIncarnation {
    enum class State : std::uint8_t { Loading, Greeted, Ready };
    /// A peer whose channel a stage reported as broken, and when.
    struct FaultReport {
        Incarnation whom;
        Micros at;
    };

    ShmFile telemetry_file{};
    std::optional<StageTelemetryView> telemetry{};  // nothing: it was never started
    StageWatch watch{std::chrono::milliseconds{0}};
    State state = State::Loading;
    std::optional<Doorbell> bell{};
    std::optional<FaultReport> last_report{};  // that it made
    bool hung = false;                         // its job went on after its deadline
    bool gone = false;
    bool ended_well = false;
    std::string exit_report{};
    std::optional<Error> failure{};  // why it is not to be relied on, before the run began
};

/// One stage and its newest incarnation.
struct SupervisedStage {
    ProcessSpec spec;
    Epoch epoch{1};
    std::optional<control::Hello> hello{};  // of the first incarnation; all others must equal
    StageIncarnation newest{};

    [[nodiscard]] Incarnation who() const { return {spec.id, epoch}; }
};

class SupervisedStages {
public:
    void reserve(std::size_t count) { stages_.reserve(count); }
    SupervisedStage& add(SupervisedStage stage) { return stages_.emplace_back(std::move(stage)); }

    /// In starting order.
    [[nodiscard]] std::vector<SupervisedStage>& all() { return stages_; }
    [[nodiscard]] const std::vector<SupervisedStage>& all() const { return stages_; }
    [[nodiscard]] SupervisedStage* find(StageId id);
    /// nullptr for an incarnation that was replaced: its messages are dropped.
    [[nodiscard]] SupervisedStage* current(Incarnation who);
    /// Whether one of them hosts this actor.
    [[nodiscard]] bool host(StageId actor) const;

private:
    std::vector<SupervisedStage> stages_;
};

}  // namespace paceline
