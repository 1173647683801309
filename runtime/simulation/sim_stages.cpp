#include "runtime/simulation/sim_stages.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/simulation/machines/sim_machines.hpp"

namespace paceline {
namespace {

/// The conductor's process hosts one actor that its caller owns.
struct BorrowedBody final : SimBody {
    explicit BorrowedBody(Actor& the_actor) : borrowed{the_actor} {}
    [[nodiscard]] Actor& actor(StageId /*id*/) override { return borrowed; }
    Actor& borrowed;
};

}  // namespace

SimStages::SimStages(std::vector<SimProcessSpec> stages, std::vector<EdgeSpec> edges)
    : edges_{std::move(edges)} {
    for (SimProcessSpec& spec : stages) {
        for (const EdgeSpec& edge : edges_) {
            if (spec.hosts(edge.from) && spec.hosts(edge.to)) spec.local_edges.push_back(edge);
        }
        stages_.push_back({.spec = std::move(spec)});
    }
}

void SimStages::start(SimSite& site, Actor& conductor) {
    PACE_CHECK(processes_.empty(), "a world is started once");
    conductor_spec_.process = {.id = kConductor, .actors = {kConductor}, .name = "conductor"};
    conductor_spec_.make = [&conductor] { return std::make_unique<BorrowedBody>(conductor); };
    make(site, conductor_spec_, Epoch{1});
    for (SimStage& each : stages_) each.serial = make(site, each.spec, Epoch{1}).self.serial;
    std::vector<SimWire> wires(processes_.size());
    for (std::size_t i = 0; i < processes_.size(); ++i) {
        for (std::size_t k = i + 1; k < processes_.size(); ++k) {
            for (const auto& channel : connect(*processes_[i], *processes_[k])) {
                wires[i].channels.push_back(channel);
                wires[k].channels.push_back(channel);
            }
        }
    }
    for (std::size_t i = wires.size(); i-- > 0;) processes_[i]->run_at_once(std::move(wires[i]));
}

SimProcess& SimStages::make(SimSite& site,
                            const SimProcessSpec& spec,
                            Epoch epoch,
                            const JobRecords& before) {
    const auto serial = static_cast<std::uint32_t>(processes_.size());
    const std::uint32_t node = spec.process.node;
    SimLinePtr line = site.machines == nullptr ? nullptr : site.machines->line_of(node);
    processes_.push_back(std::make_unique<SimProcess>(
        SimIdentity{site, spec, epoch, serial, std::move(line)}, before));
    if (node != 0) site.machines->places().started(*processes_.back());
    return *processes_.back();
}

SimChannels SimStages::connect(const SimProcess& one, const SimProcess& other) const {
    SimChannels channels;
    const auto add = [&](const EdgeSpec& edge, const SimIdentity& from, const SimIdentity& to) {
        if (!from.spec.hosts(edge.from) || !to.spec.hosts(edge.to)) return;
        channels.push_back(std::make_shared<SimChannel>(
            edge, SimChannel::End{from.serial, from.epoch}, SimChannel::End{to.serial, to.epoch},
            SimRoute{from.line, to.line}));
    };
    for (const EdgeSpec& edge : edges_) {
        add(edge, one.self, other.self);
        add(edge, other.self, one.self);
    }
    return channels;
}

SimStage& SimStages::stage(StageId id) {
    const auto found = std::find_if(stages_.begin(), stages_.end(), [id](const SimStage& each) {
        return each.spec.process.id == id;
    });
    PACE_CHECK(found != stages_.end(), "a stage that does not exist");
    return *found;
}

SimStage& SimStages::home_of(StageId actor) {
    const auto home = std::find_if(stages_.begin(), stages_.end(), [actor](const SimStage& each) {
        return each.spec.hosts(actor);
    });
    PACE_CHECK(home != stages_.end(), "an actor that no stage hosts");
    return *home;
}

std::vector<Recovery::Member> SimStages::members() const {
    std::vector<Recovery::Member> members;
    for (const SimStage& stage : stages_) {
        const ProcessSpec& process = stage.spec.process;
        members.push_back({process.id, process.name, process.on_death});
    }
    return members;
}

bool SimStages::share_devices() const {
    return std::any_of(stages_.begin(), stages_.end(),
                       [](const SimStage& stage) { return !stage.spec.device.empty(); });
}

bool SimStages::is_current(const SimProcess& process) {
    const SimIdentity& self = process.self;
    return self.is_conductor() || stage(self.id()).serial == self.serial;
}

std::optional<std::string> SimStages::forgotten_channels() {
    for (const auto& process : processes_) {
        if (process->ended() || !is_current(*process)) continue;
        for (const SimEdges::Out& out : process->edges.out()) {
            const SimProcess& peer = *processes_[out.channel->to.serial];
            if (!peer.ended()) continue;
            return process->self.title() + " still has a channel to " + peer.self.title() +
                   ", which is gone";
        }
    }
    return std::nullopt;
}

std::optional<std::string> SimStages::leaked_tensors() {
    for (const auto& producer : processes_) {
        if (producer->ended() || !is_current(*producer)) continue;
        for (const SimEdges::Out& out : producer->edges.out()) {
            // An actor may keep one slot acquired for its next batch.
            if (!out.channel->read || out.channel->tensors_free(1)) continue;
            return fmt::format("{} never got back a tensor slot from stage {}",
                               producer->self.title(), out.channel->spec.to.value);
        }
    }
    return std::nullopt;
}

}  // namespace paceline
