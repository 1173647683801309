// SimStages: the table of a simulated world: its stages and edges, and all incarnations of its
// processes, those that have ended too. The counterpart of runtime/parent/supervised_stages.hpp.
//
// References are valid for the life of the table. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/parent/recovery.hpp"
#include "runtime/parent/stage_watch.hpp"
#include "runtime/simulation/sim_process.hpp"

namespace paceline {

struct SimStage {
    SimProcessSpec spec;
    std::uint32_t serial = 0;                        // of its current incarnation
    Epoch newest{1};                                 // of all that were ever spawned
    std::vector<std::uint32_t> survivors{};          // whom its Join was told to, by serial number
    std::optional<SimTime> lingers{};                // the next kill is survived for so long
    std::optional<SimTime> dies_at_start{};          // the next incarnation, so long after Spawn
    StageWatch watch{std::chrono::milliseconds{0}};  // of its current incarnation
    bool hung = false;                               // in a job that went on after its deadline
};

class SimStages {
public:
    SimStages(std::vector<SimProcessSpec> stages, std::vector<EdgeSpec> edges);

    /// All processes at work in epoch 1, all channels there. `conductor` is borrowed.
    void start(SimSite& site, Actor& conductor);
    /// A new incarnation.
    SimProcess& make(SimSite& site,
                     const SimProcessSpec& spec,
                     Epoch epoch,
                     const JobRecords& before = {});
    /// New channels between two incarnations, one for each edge.
    [[nodiscard]] SimChannels connect(const SimProcess& one, const SimProcess& other) const;

    [[nodiscard]] std::vector<SimStage>& all() { return stages_; }
    [[nodiscard]] const std::vector<SimStage>& all() const { return stages_; }
    [[nodiscard]] SimStage& stage(StageId process);
    /// The stage that hosts an actor.
    [[nodiscard]] SimStage& home_of(StageId actor);
    /// As the rules of recovery know them.
    [[nodiscard]] std::vector<Recovery::Member> members() const;
    /// Whether the jobs of several may run on one device.
    [[nodiscard]] bool share_devices() const;

    /// In the order in which they were made; 0: the conductor.
    [[nodiscard]] const std::vector<std::unique_ptr<SimProcess>>& incarnations() const {
        return processes_;
    }
    [[nodiscard]] SimProcess& process(std::uint32_t serial) { return *processes_[serial]; }
    [[nodiscard]] SimProcess& conductor() { return process(0); }
    /// The current incarnation.
    [[nodiscard]] SimProcess& at(const SimStage& stage) { return process(stage.serial); }
    [[nodiscard]] bool is_current(const SimProcess& process);

    /// Tensor slots that are neither free nor held by their producer for its next batch: a
    /// sentence about the first one.
    [[nodiscard]] std::optional<std::string> leaked_tensors();
    /// Channels to an incarnation that is no more: a sentence about the first one.
    [[nodiscard]] std::optional<std::string> forgotten_channels();

private:
    SimProcessSpec conductor_spec_;
    std::vector<SimStage> stages_;
    std::vector<EdgeSpec> edges_;
    std::vector<std::unique_ptr<SimProcess>> processes_;
};

}  // namespace paceline
