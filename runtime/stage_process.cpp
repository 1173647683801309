#include "runtime/stage_process.hpp"

#include <cstdio>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <variant>

#include "ipc/messages.hpp"

namespace paceline {
namespace {

/// How long a stage waits for its conductor's next word while it starts. Generous: the others
/// may be loading for minutes; a conductor that is gone closes the socket at once.
constexpr std::chrono::minutes kConductorLimit{30};

Error unexpected(const char* wanted, const control::Message& message) {
    return {Errc::Protocol, "the conductor sent '" +
                                std::string{control::name_of(control::type_of(message))} +
                                "' instead of '" + wanted + "'"};
}

}  // namespace

Result<std::unique_ptr<StageProcess>> StageProcess::join(int control_fd) {
    if (::fcntl(control_fd, F_SETFD, FD_CLOEXEC) != 0) {
        return Error{Errc::BadArgument, std::string{kControlFdOption} + " " +
                                            std::to_string(control_fd) +
                                            " is not an open descriptor; stages are started by "
                                            "'paceline run', not by hand"};
    }
    std::unique_ptr<StageProcess> process{new StageProcess{ControlSocket{OwnedFd{control_fd}}}};
    Result<ControlSocket::Received> first =
        process->socket_.receive(std::chrono::steady_clock::now() + kConductorLimit);
    if (!first.ok()) return first.error();
    auto* assign = std::get_if<control::Assign>(&first.value().message);
    if (assign == nullptr) return unexpected("assign", first.value().message);
    process->assignment_ = std::move(*assign);
    return process;
}

Result<Wiring> StageProcess::introduce(control::Hello hello) {
    hello.wire_version = msg::kWireVersion;
    hello.pid = static_cast<std::uint32_t>(::getpid());
    const Status said = socket_.send(hello);
    if (!said.ok()) return said.error();
    Result<ControlSocket::Received> answer =
        socket_.receive(std::chrono::steady_clock::now() + kConductorLimit);
    if (!answer.ok()) return answer.error();
    // Refused: the conductor has told the user why, this stage just goes.
    if (std::holds_alternative<control::Shutdown>(answer.value().message)) {
        return Error{Errc::Cancelled, "the conductor ended the run before it began"};
    }
    const auto* wire = std::get_if<control::Wire>(&answer.value().message);
    if (wire == nullptr) return unexpected("wire", answer.value().message);
    Result<Wiring> wiring =
        attach_wiring(assignment_.stage, assignment_.epoch, *wire, answer.value().files);
    if (!wiring.ok()) return wiring.error();
    const Status ready = socket_.send(control::Ready{assignment_.epoch});
    if (!ready.ok()) return ready.error();
    return wiring;
}

int StageProcess::finish(const Status& ended) {
    if (ended.ok() || ended.error().code == Errc::Cancelled) return 0;
    std::string text = ended.error().what.substr(0, control::kTextBytesMax);
    std::fprintf(stderr, "%s\n", text.c_str());
    // Without a conductor there is nobody to tell; the exit code says it.
    if (ended.error().code != Errc::PeerGone) {
        const Status told = socket_.send(
            control::Failed{static_cast<std::uint8_t>(ended.error().code), std::move(text)});
        if (!told.ok()) return 1;
    }
    return 1;
}

Status StageProcess::send(StageId to, const control::Message& message) {
    PACE_CHECK(to == kConductor, "a stage's control messages go to the conductor");
    return socket_.send(message);
}

Status StageProcess::poll(const Deliver& deliver) {
    for (;;) {
        Result<std::optional<ControlSocket::Received>> received = socket_.try_receive();
        if (!received.ok()) return received.error();
        if (!received.value()) return {};
        deliver(kConductor, received.value()->message);
    }
}

}  // namespace paceline
