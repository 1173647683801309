// The second half of Supervisor: a run that has begun. The first half (supervisor.cpp) starts and
// ends it.
#include <algorithm>
#include <fmt/core.h>
#include <time.h>
#include <utility>
#include <variant>

#include "ipc/base/check.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/parent/supervisor_impl.hpp"

namespace paceline {
namespace {

constexpr std::chrono::milliseconds kSendLimit{10'000};
constexpr std::chrono::milliseconds kLookInterval{10};  // between two looks at all telemetry blocks
constexpr std::chrono::milliseconds kLateLook{1'000};

StageWatch::Nanos monotonic_now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

Micros micros_now() {
    return std::chrono::duration_cast<Micros>(monotonic_now());
}

}  // namespace

// ---- what the node agent sees ----

Supervisor::Impl::Stage* Supervisor::Impl::find(StageId id) {
    const auto found = std::find_if(stages_.begin(), stages_.end(),
                                    [id](const Stage& s) { return s.spec.id == id; });
    return found == stages_.end() ? nullptr : &*found;
}

/// nullptr for an incarnation that was replaced: its messages are dropped.
Supervisor::Impl::Stage* Supervisor::Impl::current(Incarnation who) {
    Stage* stage = find(who.id);
    return stage != nullptr && stage->epoch == who.epoch ? stage : nullptr;
}

void Supervisor::Impl::on_message(Incarnation who, ControlSocket::Received received) {
    Stage* stage = current(who);
    if (stage == nullptr) return;
    control::Message& message = received.message;
    if (auto* hello = std::get_if<control::Hello>(&message)) {
        on_hello(*stage, std::move(*hello));
    } else if (const auto* ready = std::get_if<control::Ready>(&message)) {
        // Ready before Hello would let a stage through whose build was not compared.
        if (stage->state != State::Greeted) return;
        stage->state = State::Ready;
        if (recovery_) recovery_->ready(who.id, ready->epoch, micros_now());
    } else if (const auto* failed = std::get_if<control::Failed>(&message)) {
        on_failed(*stage, *failed);
    } else if (const auto* rewired = std::get_if<control::Rewired>(&message)) {
        if (!recovery_ || find(rewired->peer) == nullptr) return;
        recovery_->rewired(who.id, rewired->peer, rewired->peer_epoch, micros_now());
    } else if (const auto* fault = std::get_if<control::EdgeFault>(&message)) {
        on_edge_fault(*stage, *fault);
    } else if (const auto* offer = std::get_if<control::EdgeOffer>(&message)) {
        on_offer(*stage, *offer, received.files);
    } else if (std::holds_alternative<control::BeginWanted>(message) &&
               is_own_mail(*stage, received.envelope)) {
        if (phase_ == Phase::Running)
            events_.emplace_back(PortMail{received.envelope, std::move(message)});
    } else {
        // This includes messages that only the conductor may send: a Shutdown would end its own loop.
        on_nonsense(*stage, fmt::format("it sent '{}' in the name of actor {}",
                                        control::name_of(control::type_of(message)),
                                        received.envelope.from.value));
    }
}

/// Of an actor of this stage, which is at work, to the conductor's actor.
bool Supervisor::Impl::is_own_mail(const Stage& stage, const Envelope& envelope) {
    const std::vector<StageId>& actors = stage.spec.actors;
    return stage.state == State::Ready && envelope.to == kConductor &&
           std::find(actors.begin(), actors.end(), envelope.from) != actors.end();
}

/// The peer is replaced. But a stage that corrupts what it reads would blame one peer after another, each
/// time with new channels. So a report about the conductor, about a stage that does not exist, or about two
/// incarnations within the period makes the reporting stage the faulty one.
void Supervisor::Impl::on_edge_fault(Stage& stage, const control::EdgeFault& fault) {
    if (!recovery_ || phase_ != Phase::Running) return;
    const Micros now = micros_now();
    const bool known = std::any_of(stages_.begin(), stages_.end(), [&fault](const Stage& s) {
        return std::count(s.spec.actors.begin(), s.spec.actors.end(), fault.peer) != 0;
    });
    const Incarnation whom{known ? plan_->home_of(fault.peer) : fault.peer, fault.peer_epoch};
    const bool again = stage.blame && stage.blame->whom != whom &&
                       now - stage.blame->at < options_.restarts.period;
    stage.blame = Blame{whom, now};
    if (known && !again) {
        (void)report_fault(fault.peer, fault.peer_epoch, {Errc::Protocol, fault.text});
    } else {
        recovery_->suspect(stage.spec.id, stage.epoch,
                           node_->title(stage.who()) + " finds its channels broken: " + fault.text,
                           now);
    }
}

/// Of a consumer, for the producer at the other end, which gets it after the message that has the channel.
void Supervisor::Impl::on_offer(Stage& stage,
                                const control::EdgeOffer& offer,
                                std::span<const OwnedFd> files) {
    if (phase_ == Phase::Ending) return;
    const bool wrong =
        !plan_ || files.size() > control::kOfferFilesMax || stage.state == State::Loading;
    const auto verdict = wrong ? WiringPlan::Offer::Wrong : plan_->judge(offer, stage.spec.id);
    Stage* producer =
        verdict == WiringPlan::Offer::Wrong ? nullptr : find(plan_->home_of(offer.from));
    if (producer == nullptr) {
        return on_nonsense(stage, fmt::format("it made stage {} an offer for a channel to stage {} "
                                              "that has no link",
                                              offer.from.value, offer.to.value));
    }
    if (verdict == WiringPlan::Offer::Stale) return;
    std::vector<int> descriptors;
    for (const OwnedFd& file : files) descriptors.push_back(file.get());
    // If the message cannot be sent the producer is dying.
    (void)send_to(*producer, offer, descriptors);
}

void Supervisor::Impl::on_hello(Stage& stage, control::Hello hello) {
    if (stage.state != State::Loading) return;  // it is greeted once
    std::string complaint;
    if (hello.wire_version != msg::kWireVersion) {
        complaint = fmt::format("it speaks wire version {}, the conductor {}", hello.wire_version,
                                msg::kWireVersion);
    } else if (stage.hello && (hello.equality_class != stage.hello->equality_class ||
                               hello.model_fingerprint != stage.hello->model_fingerprint ||
                               hello.vocab_size != stage.hello->vocab_size)) {
        complaint = "it came back with other weights or of another equality class";
    }
    if (!complaint.empty()) return on_nonsense(stage, complaint);
    if (!stage.hello) stage.hello = std::move(hello);
    stage.state = State::Greeted;
    if (recovery_) recovery_->greeted(stage.spec.id, stage.epoch, micros_now());
}

void Supervisor::Impl::on_failed(Stage& stage, const control::Failed& failed) {
    const bool known = failed.code <= static_cast<std::uint8_t>(Errc::System);
    const Errc code = known ? static_cast<Errc>(failed.code) : Errc::Protocol;
    stage.failure = Error{code, "failed: " + failed.text};
    if (!recovery_) return;
    // Its exit report repeats what it reported.
    const bool same_again =
        stage.state == State::Loading &&
        (code == Errc::BadFile || code == Errc::Unsupported || code == Errc::BadArgument);
    if (same_again) return recovery_->hopeless(stage.spec.id, stage.epoch, micros_now());
    recovery_->suspect(stage.spec.id, stage.epoch, "", micros_now());
}

/// The stage itself has not failed, so this sentence is the only explanation of its replacement.
void Supervisor::Impl::on_nonsense(Stage& stage, const std::string& complaint) {
    stage.failure = Error{Errc::Protocol, "failed: " + complaint};
    if (!recovery_) return;
    recovery_->suspect(stage.spec.id, stage.epoch, node_->title(stage.who()) + ": " + complaint,
                       micros_now());
}

void Supervisor::Impl::on_silence(Incarnation who, const Error& error) {
    Stage* stage = current(who);
    if (stage == nullptr || phase_ == Phase::Ending) return;
    const bool closed = error.code == Errc::PeerGone;
    if (!stage->failure) {
        stage->failure =
            Error{error.code, closed ? "closed its control channel" : "failed: " + error.what};
    }
    if (recovery_) {
        recovery_->suspect(who.id, who.epoch, closed ? "" : error.what, micros_now());
    }
}

void Supervisor::Impl::on_exit(Incarnation who, bool well, const std::string& how) {
    Stage* stage = current(who);
    if (stage == nullptr) return;
    stage->gone = true;
    stage->ended_well = well;
    stage->exit_report = how;
    if (!recovery_ || phase_ != Phase::Running) return;
    const std::uint32_t epoch = who.epoch.value;
    recovery_->gone(who.id, who.epoch, how, micros_now());
    story_.note(micros_now(), recovery_->why_of(who.id));
    if (recovery_->health_of(who.id) == StageHealth::Resting ||
        recovery_->health_of(who.id) == StageHealth::Loading) {
        news(fmt::format("restarting as epoch {}: {}", epoch + 1, recovery_->why_of(who.id)));
    }
}

void Supervisor::Impl::on_stopped(Stage& stage, bool stopped) {
    stage.watch.stopped(stopped, monotonic_now());
}

/// After a late look (the conductor was stopped, or the whole machine) the stages may have been frozen as
/// well: their deadlines move with it, and the limits of those that start. Before what happened meanwhile is
/// read, for recovery looks at all limits when one stage is gone.
void Supervisor::Impl::note_pause() {
    const StageWatch::Nanos now = monotonic_now();
    const StageWatch::Nanos before = std::exchange(polled_at_, now);
    const StageWatch::Nanos gap = now - before;
    if (before.count() == 0 || gap <= kLateLook) return;
    for (Stage& stage : stages_) stage.watch.paused(now, gap);
    recovery_->paused(std::chrono::duration_cast<Micros>(gap), micros_now());
}

void Supervisor::Impl::poll_telemetry() {
    const StageWatch::Nanos now = monotonic_now();
    if (now - looked_at_ < kLookInterval) return;
    looked_at_ = now;
    for (Stage& stage : stages_) {
        if (stage.gone || stage.state != State::Ready) continue;
        const std::optional<std::string> complaint =
            stage.watch.complaint(stage.telemetry->snapshot(), now);
        if (!complaint) continue;
        stage.hung = !stage.watch.is_stopped();
        recovery_->suspect(stage.spec.id, stage.epoch, node_->title(stage.who()) + " " + *complaint,
                           micros_now());
    }
}

// ---- what recovery decides ----

void Supervisor::Impl::carry_out_commands() {
    while (const std::optional<Recovery::Command> command = recovery_->next()) {
        std::visit([this](const auto& c) { carry_out(c); }, *command);
    }
}

void Supervisor::Impl::carry_out(const Recovery::Spawn& spawn) {
    Stage& stage = *find(spawn.id);
    own_telemetry_->count(Counter::Restarts);
    stage.epoch = spawn.epoch;
    stage.bell.reset();
    stage.failure.reset();
    const Status started = start_one(stage);
    if (started.ok()) return;
    stage.gone = true;
    recovery_->gone(spawn.id, spawn.epoch, started.error().what, micros_now());
}

void Supervisor::Impl::carry_out(const Recovery::Unwire& unwire) {
    const Stage& lost = *find(unwire.id);
    plan_->unwire(unwire.id);
    events_.emplace_back(PeersLost{lost.spec.actors});
    for (const StageId id : unwire.survivors) {
        // If the message cannot be sent the survivor is dying itself.
        (void)send_to(*find(id), control::Unwire{lost.spec.actors, unwire.epoch});
    }
}

void Supervisor::Impl::carry_out(const Recovery::Join& join) {
    Stage& stage = *find(join.id);
    Status status = plan_->wire(join.id, join.epoch);
    if (status.ok()) status = send_wire(stage);
    Result<AttachedEdges> own{AttachedEdges{}};
    if (status.ok()) own = plan_->attach(kConductor, join.id);
    if (status.ok() && !own.ok()) status = own.error();
    if (!status.ok()) {
        return recovery_->suspect(join.id, join.epoch, status.error().what, micros_now());
    }
    events_.emplace_back(PeersWired{stage.spec.actors, join.epoch, std::move(own.value().out),
                                    std::move(own.value().in)});
    for (const StageId id : join.survivors) {
        const WiringPlan::WireMessage<control::Rewire> outgoing =
            plan_->wire_message_about(join.id, id);
        (void)send_to(*find(id), outgoing.message, outgoing.files);
    }
}

void Supervisor::Impl::carry_out(const Recovery::Joined& joined) {
    const Stage& stage = *find(joined.id);
    events_.emplace_back(PeersJoined{stage.spec.actors});
    news(fmt::format("{} is at work again (epoch {})", node_->title(stage.who()),
                     joined.epoch.value));
}

// ---- running ----

Status Supervisor::Impl::send_to(Stage& stage,
                                 const control::Message& message,
                                 std::span<const int> files,
                                 Envelope envelope) {
    const Status sent = node_->send(stage.who(), message, files, kSendLimit, envelope);
    if (sent.ok() && stage.bell) stage.bell->announce();
    return sent;
}

Status Supervisor::Impl::send(Envelope envelope, const control::Message& message) {
    Stage* stage = find(plan_->home_of(envelope.to));
    PACE_CHECK(stage != nullptr, "a control message to a stage that was not started");
    // A stage that is not Up yet expects other messages first, and gets this one when it has joined.
    if (health_of(stage->spec.id) != StageHealth::Up) return {};
    // If the message cannot be sent the stage is lost or about to be, and does not need it.
    (void)send_to(*stage, message, {}, envelope);
    return {};
}

Status Supervisor::Impl::poll(const Deliver& deliver) {
    const bool running = recovery_ && phase_ == Phase::Running;
    if (running) note_pause();
    node_->poll();
    if (running) {
        poll_telemetry();
        recovery_->tick(micros_now());
        carry_out_commands();
    }
    while (!events_.empty()) {
        PortEvent event = std::move(events_.front());
        events_.pop_front();
        deliver(std::move(event));
    }
    if (end_) return *end_;
    return trouble();
}

Status Supervisor::Impl::report_fault(StageId peer, Epoch peer_epoch, const Error& error) {
    if (!recovery_ || phase_ != Phase::Running || peer == kConductor) return {};
    const StageId home = plan_->home_of(peer);
    recovery_->suspect(home, peer_epoch, node_->title({home, peer_epoch}) + ": " + error.what,
                       micros_now());
    return {};
}

void Supervisor::Impl::excuse_loss(StageId peer) {
    if (recovery_) recovery_->excuse(plan_->home_of(peer));
}

std::vector<pid_t> Supervisor::Impl::pids() const {
    std::vector<pid_t> pids;
    for (const Stage& stage : stages_) pids.push_back(node_ ? node_->pid(stage.who()) : 0);
    return pids;
}

StageHealth Supervisor::Impl::health_of(StageId id) const {
    return recovery_ ? recovery_->health_of(id) : StageHealth::Loading;
}

}  // namespace paceline
