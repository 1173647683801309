#include "actors/segment/segment_actor.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>
#include <variant>

#include "actors/protocol/counters.hpp"
#include "ipc/base/faults.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {

SegmentActor::SegmentActor(SegmentPlan plan, Backend& backend)
    : plan_{std::move(plan)},
      backend_{backend},
      host_{.limits = {.vocab_size = backend.config().vocab_size,
                       .kv_slots = backend.kv_slots(),
                       .context = backend.kv_slots(),
                       .batch_rows = plan_.dispatch.batch_rows(),
                       .sublayers = static_cast<std::uint32_t>(backend.config().sublayers())}},
      roles_{plan_, host_, backend},
      intake_{plan_, host_, backend},
      outlet_{host_, plan_.next, static_cast<std::size_t>(backend.config().dim)},
      runner_{host_,
              backend,
              roles_,
              intake_,
              outlet_,
              {.apply = [this](RequestState& state,
                               const msg::Verdict& verdict) { return apply(state, verdict); },
               .applied = [this] { return begin_waiting(); }}} {
    host_.inbox.attach(*this);
}

void SegmentActor::on_start(StageContext& context) {
    host_.context = &context;
    host_.outbox.emplace(context);
    host_.inbox.start(context);
    roles_.start(context);
    connect();
}

/// Fetches the ends of the tensor pools. A neighbour that is lost has none: then nothing is
/// passed on until it has joined.
void SegmentActor::connect() {
    intake_.connect();
    outlet_.connect();
}

// ---- The inbox

void SegmentActor::on_control(StageId /*from*/, const control::Message& message) {
    if (const auto* begun = std::get_if<control::Begin>(&message)) host_.report(begin(*begun));
}

void SegmentActor::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    Status status = host_.inbox.deliver(from, kind, bytes);
    if (status.ok()) status = runner_.advance();
    host_.report(status);
}

void SegmentActor::on_room(StageId /*to*/) {
    if (roles_.tap) roles_.tap->flush();
    if (roles_.features) roles_.features->flush();
    host_.report(runner_.advance());
}

void SegmentActor::on_peer(StageId peer, PeerChange change) {
    if (change == PeerChange::Lost) {
        host_.outbox->forget(peer);
        host_.inbox.attempts.forget(peer);
    }
    if (roles_.tap && peer == plan_.tap->draft) roles_.tap->forget();
    if (roles_.features && peer == plan_.features->draft) roles_.features->forget();
    if (roles_.dispatcher) roles_.dispatcher->peer_changed(peer, change);
    if (roles_.early_verify && peer == plan_.first_segment) roles_.early_verify->forget_price();
    const std::vector<StageId>& speculative = plan_.speculative;
    if (peer == plan_.draft ||
        std::find(speculative.begin(), speculative.end(), peer) != speculative.end()) {
        return host_.report(runner_.advance());
    }
    if (peer == plan_.previous) {
        intake_.lose();
        runner_.forget_tensors();
    }
    if (peer == plan_.next) outlet_.lose();
    Status status = drop_cancelled();
    connect();
    if (status.ok()) status = runner_.advance();
    host_.report(status);
}

/// No attempt that is known here can be continued: the conductor raises them all, and posts the
/// next Begin only after this stage was told that the peer has joined.
Status SegmentActor::drop_cancelled() {
    host_.requests.stop_all();
    roles_.all_ended();
    runner_.cancel();
    if (roles_.dispatcher) roles_.dispatcher->drop_work();
    intake_.drop_cancelled();
    AttemptFilter& attempts = host_.inbox.attempts;
    for (const auto& [id, waiting] : std::exchange(waiting_begins_, {}))
        attempts.begun(id, waiting.begin.attempt);
    attempts.all_ended();
    show_gauges();
    return host_.inbox.deliver_due();
}

// ---- Requests

/// Grammars come with Begins, and later ones rely on them: those of stale ones are kept too.
Status SegmentActor::begin(const control::Begin& begin) {
    Result<BeginPayload> decoded = decode_begin(begin.payload);
    if (!decoded) return decoded.error();
    BeginPayload& spec = decoded.value();
    if (Status taken = grammars_.take(spec); !taken) return taken;
    if (!host_.inbox.attempts.is_news(begin.request, begin.attempt)) return {};
    if (Status valid = validate(spec, backend_.config().vocab_size, backend_.kv_slots()); !valid) {
        return valid;
    }
    if (spec.compiled != nullptr && !plan_.next && plan_.verify.grammars == nullptr)
        return no_grammars();
    waiting_begins_.insert_or_assign(begin.request, WaitingBegin{begin, std::move(spec)});
    return open_waiting(begin.request);
}

Status SegmentActor::open_waiting(RequestId request) {
    if (host_.requests.must_wait(request)) return {};
    WaitingBegin next = std::move(waiting_begins_.extract(request).mapped());
    if (!host_.inbox.attempts.is_news(request, next.begin.attempt)) return {};
    return open(next.begin, std::move(next.spec));
}

Status SegmentActor::begin_waiting() {
    std::vector<RequestId> waiting;
    for (const auto& [id, next] : waiting_begins_) waiting.push_back(id);
    for (const RequestId id : waiting) {
        if (!waiting_begins_.contains(id)) continue;
        if (Status begun = open_waiting(id); !begun) return begun;
    }
    return {};
}

Status SegmentActor::open(const control::Begin& begin, BeginPayload spec) {
    const TreeRole role = roles_.dispatcher ? TreeRole::Names : TreeRole::Follows;
    const auto made = host_.requests.make(begin, std::move(spec), role);
    if (!made) return made.error();
    if (plan_.verify.grammars != nullptr) made.value()->follow_grammar(*plan_.verify.grammars);
    roles_.begin(made.value());
    host_.requests.add(made.value());
    runner_.cancel_if_stale();
    host_.inbox.attempts.begun(begin.request, begin.attempt);
    fault_point(FaultPoint::BeginTaken);
    show_gauges();
    if (Status done = host_.inbox.deliver_due(); !done) return done;
    return runner_.advance();
}

Status SegmentActor::handle(StageId from, const msg::Verdict& verdict) {
    if (from != plan_.verifier) {
        return Error{
            Errc::Protocol,
            fmt::format("a verdict from stage {}, which is not the last segment", from.value)};
    }
    if (Status checked = check_message(verdict, host_.limits); !checked) return checked;
    const Result<Age> age = host_.inbox.admit(from, verdict);
    if (!age) return age.error();
    const auto state = host_.requests.find(verdict.route.request, verdict.route.attempt);
    if (age.value() != Age::Current || !state) return {};
    if (Status applied = apply(*state, verdict); !applied) return applied;
    host_.report(begin_waiting());  // their Begins are not this sender's
    return {};
}

Status SegmentActor::apply(RequestState& state, const msg::Verdict& verdict) {
    const Result<TreeUpdate> step = state.apply(verdict);
    if (!step) return step.error();
    roles_.follow(state, verdict, step.value());
    runner_.cancel_if_stale();
    if (!state.over()) return {};
    host_.inbox.attempts.ended(state.request());
    show_gauges();
    return {};
}

Status SegmentActor::handle(StageId from, const msg::Stop& stop) {
    const msg::Route& route = stop.route;
    if (from != kConductor) {
        return Error{
            Errc::Protocol,
            fmt::format("a stop from stage {}; only the conductor stops a request", from.value)};
    }
    const Age age = host_.inbox.peek<msg::Stop>(from, route);
    if (age == Age::Stale && !planted(PlantedBug::StopIgnoresAttempt)) return {};
    host_.inbox.attempts.stopped(route.request, route.attempt);
    // A waiting Begin may be of a later attempt than this Stop.
    const auto waiting = waiting_begins_.find(route.request);
    if (waiting != waiting_begins_.end() && waiting->second.begin.attempt <= route.attempt)
        waiting_begins_.erase(waiting);
    roles_.ended(route.request);
    const auto state = host_.requests.latest(route.request);
    if (!state) return {};
    state->stop();
    runner_.cancel_if_stale();
    show_gauges();
    host_.report(begin_waiting());
    return {};
}

/// The pages are the dispatcher's choice: every segment takes the same ones, before the first rows
/// of the attempt, which come after this message.
Status SegmentActor::handle(StageId from, const msg::Prefix& prefix) {
    if (from != plan_.previous) {
        return Error{Errc::Protocol,
                     fmt::format("a cached prefix from stage {}, which is not the segment before",
                                 from.value)};
    }
    if (Status checked = check_message(prefix, host_.limits); !checked) return checked;
    const Result<Age> age = host_.inbox.admit(from, prefix);
    if (!age) return age.error();
    const auto state = host_.requests.find(prefix.route.request, prefix.route.attempt);
    if (age.value() != Age::Current || !state) return {};
    const bool has_lost_them = plan_.previous->value < prefix.behind;
    const auto pages = std::span{prefix.pages}.first(prefix.count);
    Status taken;
    if (!has_lost_them) taken = state->take_prefix(prefix.first_block, pages, prefix.matched);
    if (!taken) return taken;
    if (!plan_.next) return {};
    msg::Prefix next = prefix;
    next.route.epoch = host_.context->epoch();
    host_.outbox->send<SegmentActor>(*plan_.next, next);
    return {};
}

// ---- Metrics

void SegmentActor::show_gauges() {
    host_.context->set(gauges::kRequests, host_.requests.running());
    host_.context->set(gauges::kQueueDepth, intake_.size());
    if (scheduler() == nullptr) return;
    host_.context->set(gauges::kKvPages, static_cast<std::uint64_t>(scheduler()->pages().in_use()));
}

}  // namespace paceline
