#include "runtime/parent/recovery_commands.hpp"

#include <fmt/core.h>
#include <utility>
#include <variant>

namespace paceline {

void RecoveryCommands::carry_out_all() {
    while (const std::optional<Recovery::Command> command = run_.recovery->next()) {
        std::visit([this](const auto& c) { carry_out(c); }, *command);
    }
}

void RecoveryCommands::carry_out(const Recovery::Spawn& spawn) {
    SupervisedStage& stage = *run_.stages.find(spawn.id);
    run_.memory.telemetry()->count(Counter::Restarts);
    stage.epoch = spawn.epoch;
    const Status started = run_.start(stage);
    if (started.ok()) return;
    stage.newest.gone = true;
    run_.recovery->gone(spawn.id, spawn.epoch, started.error().what, micros_now());
}

void RecoveryCommands::carry_out(const Recovery::Unwire& unwire) {
    const SupervisedStage& lost = *run_.stages.find(unwire.id);
    run_.plan->unwire(unwire.id);
    run_.events.emplace_back(PeersLost{lost.spec.actors});
    for (const StageId id : unwire.survivors) {
        // If the message cannot be sent the survivor is dying itself.
        (void)run_.send_to(*run_.stages.find(id), control::Unwire{lost.spec.actors, unwire.epoch});
    }
}

void RecoveryCommands::carry_out(const Recovery::Join& join) {
    SupervisedStage& stage = *run_.stages.find(join.id);
    Status status = run_.plan->wire(join.id, join.epoch);
    if (status.ok()) status = run_.send_wire(stage);
    Result<AttachedEdges> own{AttachedEdges{}};
    if (status.ok()) own = run_.plan->attach(kConductor, join.id);
    if (status.ok() && !own.ok()) status = own.error();
    if (!status.ok()) {
        return run_.recovery->suspect(join.id, join.epoch, status.error().what, micros_now());
    }
    run_.events.emplace_back(PeersWired{stage.spec.actors, join.epoch, std::move(own.value().out),
                                        std::move(own.value().in)});
    for (const StageId id : join.survivors) {
        const WiringPlan::WireMessage<control::Rewire> outgoing =
            run_.plan->wire_message_about(join.id, id);
        (void)run_.send_to(*run_.stages.find(id), outgoing.message, outgoing.files);
    }
}

void RecoveryCommands::carry_out(const Recovery::Joined& joined) {
    const SupervisedStage& stage = *run_.stages.find(joined.id);
    run_.events.emplace_back(PeersJoined{stage.spec.actors});
    run_.news(fmt::format("{} is at work again (epoch {})", run_.node->title(stage.who()),
                          joined.epoch.value));
}

}  // namespace paceline
