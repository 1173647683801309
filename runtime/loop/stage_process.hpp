// StageProcess: the child's side of starting a stage, and its line to the conductor.
//
//     auto process = StageProcess::join(control_fd);      // waits for Assign
//     ... load what process->assignment().payload asks for ...
//     auto wiring = process->introduce(hello);            // Hello out, Wire in, Ready out
//     StageLoop loop(std::move(wiring), *process, {});
//     loop.add(process->assignment().stage, actor);       // and the others of its actors
//     return process->finish(loop.run());                 // the exit code
//
// A stage whose conductor has died exits: it detects this by the control socket and by the
// parent-death signal.
#pragma once

#include <memory>

#include "ipc/base/result.hpp"
#include "ipc/wire/control.hpp"
#include "ipc/wire/control_socket.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/loop/wiring.hpp"
#include "runtime/observe/stage_telemetry.hpp"

namespace paceline {

/// The hidden subcommand by which a stage is started: `<exe> stage --control-fd N`.
inline constexpr const char* kStageSubcommand = "stage";
inline constexpr const char* kControlFdOption = "--control-fd";

class StageProcess final : public ControlPort {
public:
    /// Takes over `control_fd` and waits for the assignment. Also checks again for the death of the
    /// parent: Errc::PeerGone if the conductor has died already.
    [[nodiscard]] static Result<std::unique_ptr<StageProcess>> join(int control_fd);

    [[nodiscard]] const control::Assign& assignment() const { return assignment_; }
    /// The telemetry block of this process, which its loop will use too.
    [[nodiscard]] StageTelemetry& telemetry() { return *telemetry_; }

    /// Sends Hello (wire version and pid are filled in here), waits for Wire, attaches the channels
    /// and answers Ready.
    [[nodiscard]] Result<Wiring> introduce(control::Hello hello);

    /// Reports a failed run to the conductor and gives the exit code: 0 for ok, 1 otherwise.
    /// Also for errors before introduce(): a model that does not load.
    [[nodiscard]] int finish(const Status& ended);

    [[nodiscard]] Status send(Envelope envelope, const control::Message& message) override;
    [[nodiscard]] Status poll(const Deliver& deliver) override;
    [[nodiscard]] Status report_fault(StageId peer, Epoch peer_epoch, const Error& error) override;
    [[nodiscard]] Status wired(StageId peer, Epoch peer_epoch) override;
    [[nodiscard]] Status offer(StageId from,
                               Epoch from_epoch,
                               StageId to,
                               const LinkOffer& offer) override;

private:
    explicit StageProcess(ControlSocket socket) : socket_{std::move(socket)} {}
    [[nodiscard]] Status attach_memory(std::span<const OwnedFd> files);
    [[nodiscard]] Status deliver_one(ControlSocket::Received received, const Deliver& deliver);

    ControlSocket socket_;
    control::Assign assignment_;
    std::shared_ptr<StageTelemetry> telemetry_;
    std::shared_ptr<CancelBoard> board_;
};

}  // namespace paceline
