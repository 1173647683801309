#include "runtime/loop/stage_process.hpp"

#include <cstdio>
#include <fcntl.h>
#include <fmt/core.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <variant>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {
namespace {

/// How long a starting stage waits for the conductor's next message. Generous: other stages
/// may load for minutes, and the socket closes at once if the conductor dies.
constexpr std::chrono::minutes kConductorLimit{30};

Error unexpected(const char* wanted, const control::Message& message) {
    return {Errc::Protocol, "the conductor sent '" +
                                std::string{control::name_of(control::type_of(message))} +
                                "' instead of '" + wanted + "'"};
}

}  // namespace

// ---- starting ----

Result<std::unique_ptr<StageProcess>> StageProcess::join(int control_fd) {
    if (::fcntl(control_fd, F_SETFD, FD_CLOEXEC) != 0) {
        return Error{Errc::BadArgument, fmt::format("{} {} is not an open descriptor; stages are "
                                                    "started by 'paceline run', not by hand",
                                                    kControlFdOption, control_fd)};
    }
    std::unique_ptr<StageProcess> process{new StageProcess{ControlSocket{OwnedFd{control_fd}}}};
    Result<ControlSocket::Received> first =
        process->socket_.receive(std::chrono::steady_clock::now() + kConductorLimit);
    if (!first.ok()) return first.error();
    auto* assign = std::get_if<control::Assign>(&first.value().message);
    if (assign == nullptr) return unexpected("assign", first.value().message);
    process->assignment_ = std::move(*assign);
    if (process->assignment_.actors.empty()) {
        return Error{Errc::Protocol, "the conductor sent an assignment without actors"};
    }
    if (const Status attached = process->attach_memory(first.value().files); !attached.ok()) {
        return attached.error();
    }
    // Only the conductor's start limit bounds how long loading takes.
    process->telemetry_->enter(Activity::Loading, std::chrono::nanoseconds{0});
    return process;
}

Status StageProcess::attach_memory(std::span<const OwnedFd> files) {
    if (files.size() != 2) {
        return Error{
            Errc::Protocol,
            fmt::format("an assignment brings two memory files, this one {}", files.size())};
    }
    Result<ShmRegion> telemetry_memory = ShmRegion::attach(files[0].get(), 1);
    if (!telemetry_memory.ok()) return telemetry_memory.error();
    Result<StageTelemetry> telemetry = StageTelemetry::attach(std::move(telemetry_memory).value());
    if (!telemetry.ok()) return telemetry.error();
    telemetry_ = std::make_shared<StageTelemetry>(std::move(telemetry).value());
    Result<ShmRegion> board_memory = ShmRegion::attach(files[1].get(), 1);
    if (!board_memory.ok()) return board_memory.error();
    Result<CancelBoard> board = CancelBoard::attach(std::move(board_memory).value());
    if (!board.ok()) return board.error();
    board_ = std::make_shared<CancelBoard>(std::move(board).value());
    return {};
}

Result<Wiring> StageProcess::introduce(control::Hello hello) {
    hello.wire_version = msg::kWireVersion;
    hello.pid = static_cast<std::uint32_t>(::getpid());
    const Status said = socket_.send(hello);
    if (!said.ok()) return said.error();
    telemetry_->enter(Activity::Starting, std::chrono::nanoseconds{0});
    Result<ControlSocket::Received> answer =
        socket_.receive(std::chrono::steady_clock::now() + kConductorLimit);
    if (!answer.ok()) return answer.error();
    // Refused: the conductor has reported the reason, so this stage exits silently.
    if (std::holds_alternative<control::Shutdown>(answer.value().message)) {
        return Error{Errc::Cancelled, "the conductor ended the run before it began"};
    }
    const auto* wire = std::get_if<control::Wire>(&answer.value().message);
    if (wire == nullptr) return unexpected("wire", answer.value().message);
    Result<Doorbell> bell = attach_bell(answer.value().files, wire->bell_file);
    if (!bell.ok()) return bell.error();
    Result<AttachedEdges> edges =
        attach_edges(assignment_.epoch, wire->edges, answer.value().files);
    if (!edges.ok()) return edges.error();
    Wiring wiring{.self = assignment_.stage,
                  .actors = assignment_.actors,
                  .epoch = assignment_.epoch,
                  .spin_micros = wire->spin_micros,
                  .bell = std::move(bell).value(),
                  .hang_limit_ms = wire->hang_limit_ms,
                  .link_limit_ms = wire->link_limit_ms,
                  .out = std::move(edges.value().out),
                  .in = std::move(edges.value().in),
                  .absent = std::move(edges.value().absent),
                  .telemetry = telemetry_,
                  .board = board_};
    fault_point(FaultPoint::Wired);
    const Status ready = socket_.send(control::Ready{assignment_.epoch});
    if (!ready.ok()) return ready.error();
    return wiring;
}

int StageProcess::finish(const Status& ended) {
    if (ended.ok() || ended.error().code == Errc::Cancelled) return 0;
    std::string text = ended.error().what.substr(0, control::kTextBytesMax);
    std::fprintf(stderr, "%s\n", text.c_str());
    // Without a conductor only the exit code reports it.
    if (ended.error().code != Errc::PeerGone) {
        const Status told = socket_.send(
            control::Failed{static_cast<std::uint8_t>(ended.error().code), std::move(text)});
        if (!told.ok()) return 1;
    }
    return 1;
}

// ---- running ----

Status StageProcess::send(Envelope envelope, const control::Message& message) {
    PACE_CHECK(envelope.to == kConductor, "a stage's control messages go to the conductor");
    return socket_.send(message, {}, ControlSocket::Millis{10'000}, envelope);
}

Status StageProcess::poll(const Deliver& deliver) {
    for (;;) {
        Result<std::optional<ControlSocket::Received>> received = socket_.try_receive();
        if (!received.ok()) return received.error();
        if (!received.value()) return {};
        const Status delivered = deliver_one(std::move(*received.value()), deliver);
        if (!delivered.ok()) return delivered;
    }
}

Status StageProcess::deliver_one(ControlSocket::Received received, const Deliver& deliver) {
    if (auto* lost = std::get_if<control::Unwire>(&received.message)) {
        deliver(PeersLost{std::move(lost->peers)});
        return {};
    }
    if (auto* offer = std::get_if<control::EdgeOffer>(&received.message)) {
        if (offer->from_epoch != assignment_.epoch) return {};  // not of this incarnation
        deliver(LinkOffered{offer->from,
                            offer->to,
                            offer->to_epoch,
                            {std::move(offer->bytes), std::move(received.files)}});
        return {};
    }
    auto* rewire = std::get_if<control::Rewire>(&received.message);
    if (rewire == nullptr) {
        deliver(PortMail{received.envelope, std::move(received.message)});
        return {};
    }
    if (rewire->peers.empty()) {
        return Error{Errc::Protocol, "the conductor rewires a process without actors"};
    }
    Result<AttachedEdges> edges = attach_edges(assignment_.epoch, rewire->edges, received.files);
    if (!edges.ok()) return edges.error();
    deliver(PeersWired{rewire->peers, rewire->peer_epoch, std::move(edges.value().out),
                       std::move(edges.value().in)});
    deliver(PeersJoined{std::move(rewire->peers)});
    return {};
}

Status StageProcess::report_fault(StageId peer, Epoch peer_epoch, const Error& error) {
    return socket_.send(
        control::EdgeFault{peer, peer_epoch, error.what.substr(0, control::kTextBytesMax)});
}

Status StageProcess::wired(StageId peer, Epoch peer_epoch) {
    return socket_.send(control::Rewired{peer, peer_epoch});
}

Status StageProcess::offer(StageId from, Epoch from_epoch, StageId to, const LinkOffer& offer) {
    if (offer.bytes.size() > control::kOfferBytesMax ||
        offer.files.size() > control::kOfferFilesMax) {
        return Error{Errc::Unsupported,
                     fmt::format("an offer of {} bytes and {} descriptors; at most {} and {} are "
                                 "passed on",
                                 offer.bytes.size(), offer.files.size(), control::kOfferBytesMax,
                                 control::kOfferFilesMax)};
    }
    std::vector<int> files;
    for (const OwnedFd& file : offer.files) files.push_back(file.get());
    return socket_.send(control::EdgeOffer{from, from_epoch, to, assignment_.epoch, offer.bytes},
                        files);
}

}  // namespace paceline
