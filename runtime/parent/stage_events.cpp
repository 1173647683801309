#include "runtime/parent/stage_events.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/wire/messages.hpp"

namespace paceline {

NodeEvents StageEvents::handlers() {
    NodeEvents events;
    events.on_message = [this](Incarnation who, ControlSocket::Received received) {
        hang_check_.note_pause();
        on_message(who, std::move(received));
    };
    events.on_silence = [this](Incarnation who, const Error& error) {
        hang_check_.note_pause();
        on_silence(who, error);
    };
    events.on_exit = [this](Incarnation who, bool well, const std::string& how) {
        hang_check_.note_pause();
        on_exit(who, well, how);
    };
    events.on_machine_lost = [this](Incarnation who, const std::string& why) {
        hang_check_.note_pause();
        on_machine_lost(who, why);
    };
    events.on_machine_back = [this](StageId id) {
        if (run_.is_running()) run_.recovery->machine_back(id, micros_now());
    };
    events.on_hung = [this](Incarnation who, const std::string& complaint) {
        hang_check_.note_pause();
        on_hung(who, complaint);
    };
    events.on_flushed = [this](Incarnation who) {
        Stage* stage = run_.stages.current(who);
        if (stage != nullptr && stage->newest.bell) stage->newest.bell->announce();
    };
    events.on_stopped = [this](Incarnation who, bool stopped) {
        if (Stage* stage = run_.stages.current(who))
            stage->newest.watch.stopped(stopped, monotonic_now());
    };
    events.on_unpinned = [this](Incarnation, int error) { run_.pin_error = error; };
    events.on_signal = [this](int signal) { run_.end.interrupt(signal); };
    if (run_.options.on_log) {
        events.on_line = [this](Incarnation who, std::string_view line) {
            const Stage* stage = run_.stages.find(who.id);
            run_.options.on_log(stage != nullptr ? stage->spec.name : "", line);
        };
    }
    return events;
}

void StageEvents::on_message(Incarnation who, ControlSocket::Received received) {
    Stage* stage = run_.stages.current(who);
    if (stage == nullptr) return;
    control::Message& message = received.message;
    if (auto* hello = std::get_if<control::Hello>(&message)) {
        on_hello(*stage, std::move(*hello));
    } else if (const auto* ready = std::get_if<control::Ready>(&message)) {
        // Ready before Hello would let a stage through whose build was not compared.
        if (stage->newest.state != State::Greeted) return;
        stage->newest.state = State::Ready;
        if (run_.recovery) run_.recovery->ready(who.id, ready->epoch, micros_now());
    } else if (const auto* failed = std::get_if<control::Failed>(&message)) {
        on_failed(*stage, *failed);
    } else if (const auto* rewired = std::get_if<control::Rewired>(&message)) {
        if (!run_.recovery || run_.stages.find(rewired->peer) == nullptr) return;
        run_.recovery->rewired(who.id, rewired->peer, rewired->peer_epoch, micros_now());
    } else if (const auto* fault = std::get_if<control::EdgeFault>(&message)) {
        on_edge_fault(*stage, *fault);
    } else if (const auto* offer = std::get_if<control::EdgeOffer>(&message)) {
        on_offer(*stage, *offer, received.files);
    } else if ((std::holds_alternative<control::BeginWanted>(message) ||
                std::holds_alternative<control::PagesWanted>(message)) &&
               is_own_mail(*stage, received.envelope)) {
        if (run_.phase == Phase::Running)
            run_.events.emplace_back(PortMail{received.envelope, std::move(message)});
    } else {
        // This includes messages that only the conductor may send: a Shutdown would end its own
        // loop.
        on_nonsense(*stage, fmt::format("it sent '{}' in the name of actor {}",
                                        control::name_of(control::type_of(message)),
                                        received.envelope.from.value));
    }
}

/// Of an actor of this stage, which is at work, to the conductor's actor.
bool StageEvents::is_own_mail(const Stage& stage, const Envelope& envelope) {
    const std::vector<StageId>& actors = stage.spec.actors;
    return stage.newest.state == State::Ready && envelope.to == kConductor &&
           std::find(actors.begin(), actors.end(), envelope.from) != actors.end();
}

/// The peer is replaced. But a stage that corrupts what it reads would report one peer after
/// another, each time with new channels. So a report about the conductor, about a stage that does
/// not exist, or about two incarnations within the period makes the reporting stage the faulty one.
void StageEvents::on_edge_fault(Stage& stage, const control::EdgeFault& fault) {
    if (!run_.is_running()) return;
    const Micros now = micros_now();
    const bool known = run_.stages.host(fault.peer);
    const Incarnation whom{known ? run_.plan->home_of(fault.peer) : fault.peer, fault.peer_epoch};
    const bool again = stage.newest.last_report && stage.newest.last_report->whom != whom &&
                       now - stage.newest.last_report->at < run_.options.restarts.period;
    stage.newest.last_report = StageIncarnation::FaultReport{whom, now};
    if (known && !again) {
        run_.report_fault(fault.peer, fault.peer_epoch, {Errc::Protocol, fault.text});
    } else {
        run_.recovery->suspect(
            stage.spec.id, stage.epoch,
            run_.node->title(stage.who()) + " finds its channels broken: " + fault.text, now);
    }
}

/// Of a consumer, for the producer at the other end, which gets it after the message that has the
/// channel.
void StageEvents::on_offer(Stage& stage,
                           const control::EdgeOffer& offer,
                           std::span<const OwnedFd> files) {
    if (run_.phase == Phase::Ending) return;
    const bool wrong = !run_.plan || files.size() > control::kOfferFilesMax ||
                       stage.newest.state == State::Loading;
    const auto verdict = wrong ? WiringPlan::Offer::Wrong : run_.plan->judge(offer, stage.spec.id);
    Stage* producer = verdict == WiringPlan::Offer::Wrong
                          ? nullptr
                          : run_.stages.find(run_.plan->home_of(offer.from));
    if (producer == nullptr) {
        return on_nonsense(stage, fmt::format("it made stage {} an offer for a channel to stage {} "
                                              "that has no link",
                                              offer.from.value, offer.to.value));
    }
    if (verdict == WiringPlan::Offer::Stale) return;
    std::vector<int> descriptors;
    for (const OwnedFd& file : files) descriptors.push_back(file.get());
    // If the message cannot be sent the producer is dying.
    (void)run_.send_to(*producer, offer, descriptors);
}

void StageEvents::on_hello(Stage& stage, control::Hello hello) {
    if (stage.newest.state != State::Loading) return;  // it is greeted once
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
    stage.newest.state = State::Greeted;
    if (run_.recovery) run_.recovery->greeted(stage.spec.id, stage.epoch, micros_now());
}

void StageEvents::on_failed(Stage& stage, const control::Failed& failed) {
    const bool known = failed.code <= static_cast<std::uint8_t>(Errc::System);
    const Errc code = known ? static_cast<Errc>(failed.code) : Errc::Protocol;
    stage.newest.failure = Error{code, "failed: " + failed.text};
    if (!run_.recovery) return;
    // Its exit report repeats what it reported.
    const bool same_again =
        stage.newest.state == State::Loading &&
        (code == Errc::BadFile || code == Errc::Unsupported || code == Errc::BadArgument);
    if (same_again) return run_.recovery->hopeless(stage.spec.id, stage.epoch, micros_now());
    run_.recovery->suspect(stage.spec.id, stage.epoch, "", micros_now());
}

/// The stage itself has not failed, so this sentence is the only explanation of its replacement.
void StageEvents::on_nonsense(Stage& stage, const std::string& complaint) {
    stage.newest.failure = Error{Errc::Protocol, "failed: " + complaint};
    if (!run_.recovery) return;
    run_.recovery->suspect(stage.spec.id, stage.epoch,
                           run_.node->title(stage.who()) + ": " + complaint, micros_now());
}

void StageEvents::on_silence(Incarnation who, const Error& error) {
    Stage* stage = run_.stages.current(who);
    if (stage == nullptr || run_.phase == Phase::Ending) return;
    const bool closed = error.code == Errc::PeerGone;
    if (!stage->newest.failure) {
        stage->newest.failure =
            Error{error.code, closed ? "closed its control channel" : "failed: " + error.what};
    }
    if (run_.recovery) {
        run_.recovery->suspect(who.id, who.epoch, closed ? "" : error.what, micros_now());
    }
}

/// Its deadline was compared with the clock of its machine.
void StageEvents::on_hung(Incarnation who, const std::string& complaint) {
    Stage* stage = run_.stages.current(who);
    if (stage == nullptr || !run_.is_running()) return;
    stage->newest.hung = !stage->newest.watch.is_stopped();
    run_.recovery->suspect(who.id, who.epoch, run_.node->title(who) + " " + complaint,
                           micros_now());
}

void StageEvents::on_machine_lost(Incarnation who, const std::string& why) {
    Stage* stage = run_.stages.current(who);
    if (stage == nullptr) return;
    stage->newest.gone = true;
    stage->newest.ended_well = false;
    stage->newest.exit_report = why;
    if (!run_.is_running()) return;
    run_.recovery->machine_lost(who.id, who.epoch, why, micros_now());
    run_.end.failures().note(micros_now(), run_.recovery->why_of(who.id));
    run_.news(fmt::format("stage '{}' waits for a machine: {}", stage->spec.name,
                          run_.recovery->why_of(who.id)));
}

void StageEvents::on_exit(Incarnation who, bool well, const std::string& how) {
    Stage* stage = run_.stages.current(who);
    if (stage == nullptr) return;
    stage->newest.gone = true;
    stage->newest.ended_well = well;
    stage->newest.exit_report = how;
    if (!run_.is_running()) return;
    const std::uint32_t epoch = who.epoch.value;
    run_.recovery->gone(who.id, who.epoch, how, micros_now());
    run_.end.failures().note(micros_now(), run_.recovery->why_of(who.id));
    if (run_.recovery->health_of(who.id) == StageHealth::Resting ||
        run_.recovery->health_of(who.id) == StageHealth::Loading) {
        run_.news(
            fmt::format("restarting as epoch {}: {}", epoch + 1, run_.recovery->why_of(who.id)));
    }
}

}  // namespace paceline
