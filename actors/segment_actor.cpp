#include "actors/segment_actor.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "actors/segment_run.hpp"
#include "ipc/base/check.hpp"

namespace paceline {

SegmentActor::SegmentActor(SegmentPlan plan, Backend& backend)
    : plan_{std::move(plan)}, backend_{backend} {
    PACE_CHECK(plan_.index >= 1 && plan_.index <= plan_.count, "a segment outside of its chain");
    PACE_CHECK(plan_.previous.has_value() != first(), "every segment but the first has one before");
    PACE_CHECK(plan_.next.has_value() != last(), "every segment but the last has one behind");
    if (first()) {
        if (!plan_.draft) plan_.dispatch.start = StartRule::AtOnce;
        dispatcher_ = std::make_unique<Dispatcher>(plan_.dispatch, backend_.kv_slots());
    }
    if (last()) {
        verify_ = std::make_unique<FinalVerify>(backend_, plan_.verify);
        hidden_.resize(kWaveRowsMax * static_cast<std::size_t>(backend_.config().dim));
    }
}

SegmentActor::~SegmentActor() = default;

void SegmentActor::on_start(StageContext& context) {
    context_ = &context;
    outbox_.emplace(context);
    const std::size_t wave_bytes =
        kWaveRowsMax * static_cast<std::size_t>(backend_.config().dim) * sizeof(float);
    if (!first()) {
        in_ = context.tensors_from(*plan_.previous);
        PACE_CHECK(in_ != nullptr, "no tensors travel from the segment before");
    }
    if (!last()) {
        out_ = context.tensors_to(*plan_.next);
        PACE_CHECK(out_ != nullptr, "no tensors travel to the next segment");
        PACE_CHECK(out_->slot_bytes() >= wave_bytes, "a tensor slot is smaller than a wave");
    }
}

void SegmentActor::report(const Status& status) {
    if (!status) context_->fail(status.error());
}

MessageLimits SegmentActor::limits() const {
    return {.vocab_size = backend_.config().vocab_size,
            .kv_slots = backend_.kv_slots(),
            .context = backend_.kv_slots()};
}

std::shared_ptr<RequestState> SegmentActor::find(const msg::Route& route) const {
    const auto found = requests_.find(route.request);
    if (found == requests_.end() || found->second->attempt() != route.attempt) return nullptr;
    return found->second;
}

// ---- The inbox

void SegmentActor::on_control(StageId /*from*/, const control::Message& message) {
    if (const auto* begun = std::get_if<control::Begin>(&message)) report(begin(*begun));
}

void SegmentActor::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    report(receive(from, kind, bytes));
}

void SegmentActor::on_room(StageId /*to*/) {
    report(advance());
}

Status SegmentActor::receive(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    switch (static_cast<msg::Kind>(kind)) {
        case msg::Kind::Proposal:
            return receive_proposal(from, bytes);
        case msg::Kind::Wave:
            return receive_wave(from, bytes);
        case msg::Kind::Verdict:
            return receive_verdict(from, bytes);
        case msg::Kind::Stop:
            return receive_stop(from, bytes);
    }
    return Error{Errc::Protocol, "a message of the unknown kind " + std::to_string(kind)};
}

Status SegmentActor::begin(const control::Begin& begin) {
    if (!gate_.is_news(begin.request, begin.attempt)) return {};
    Result<Request> decoded = decode_request(begin.payload);
    if (!decoded) return decoded.error();
    const Request& request = decoded.value();
    if (Status valid = validate(request, backend_.config().vocab_size, backend_.kv_slots());
        !valid) {
        return valid;
    }
    const auto before = requests_.find(begin.request);
    if (request.reuse > 0) {
        const RequestState* held = before == requests_.end() ? nullptr : before->second.get();
        if (held != nullptr && held->slots().size() < static_cast<std::size_t>(request.reuse)) {
            // It builds on a verdict that went to the conductor and is still on its way to here.
            waiting_begins_.insert_or_assign(begin.request, begin);
            return {};
        }
        if (Status reusable = check_reuse(begin.request, request, held); !reusable) return reusable;
    }
    waiting_begins_.erase(begin.request);
    return open(begin, std::move(decoded).value());
}

Status SegmentActor::check_reuse(RequestId id,
                                 const Request& request,
                                 const RequestState* held) const {
    const bool here = held != nullptr && held->spec().context == request.context &&
                      (!first() || dispatcher_->holds(id)) &&
                      std::equal(request.text.begin(), request.text.begin() + request.reuse,
                                 held->text().begin());
    if (here) return {};
    return Error{Errc::Protocol, "request " + std::to_string(id.value) + " reuses " +
                                     std::to_string(request.reuse) +
                                     " positions that this stage does not hold"};
}

Status SegmentActor::open(const control::Begin& begin, Request request) {
    const auto before = requests_.find(begin.request);
    if (before == requests_.end() && requests_.size() >= kRequestsMax) {
        const auto oldest = std::find_if(requests_.begin(), requests_.end(),
                                         [](const auto& entry) { return entry.second->over(); });
        if (oldest == requests_.end()) {
            return Error{Errc::OutOfMemory,
                         "more than " + std::to_string(kRequestsMax) + " requests at once"};
        }
        requests_.erase(oldest);
    }
    if (running_ && running_->state->request() == begin.request) running_->cancel.cancel();
    const TreeRole role = first() ? TreeRole::Names : TreeRole::Follows;
    const RequestState* held = before == requests_.end() ? nullptr : before->second.get();
    const auto state = std::make_shared<RequestState>(begin.request, begin.attempt,
                                                      std::move(request), role, held);
    if (first()) {
        if (Status placed = dispatcher_->begin(state, context_->now()); !placed) return placed;
    }
    requests_[begin.request] = state;
    gate_.begun(begin.request, begin.attempt);
    for (const InboxGate::Held& message : gate_.take_due()) {
        if (Status done = receive(message.from, message.kind, message.bytes); !done) return done;
    }
    return advance();
}

Status SegmentActor::receive_proposal(StageId from, std::span<const std::byte> bytes) {
    if (!first() || from != plan_.draft) {
        return Error{Errc::Protocol, "a proposal from stage " + std::to_string(from.value) +
                                         ", which is not the draft of this segment"};
    }
    const Result<msg::Proposal> proposal = decode_message<msg::Proposal>(bytes);
    if (!proposal) return proposal.error();
    if (Status checked = check_message(proposal.value(), limits()); !checked) return checked;
    const auto kind = static_cast<std::uint16_t>(msg::Kind::Proposal);
    const Result<Age> age = gate_.admit(from, kind, proposal.value().route, bytes);
    if (!age) return age.error();
    if (age.value() != Age::Current) return {};
    dispatcher_->propose(proposal.value(), context_->now());
    return advance();
}

Status SegmentActor::receive_wave(StageId from, std::span<const std::byte> bytes) {
    if (from != plan_.previous) {
        return Error{Errc::Protocol, "a wave from stage " + std::to_string(from.value) +
                                         ", which is not the segment before this one"};
    }
    const Result<msg::Wave> wave = decode_message<msg::Wave>(bytes);
    if (!wave) return wave.error();
    if (Status checked = check_message(wave.value(), limits()); !checked) return checked;
    const auto kind = static_cast<std::uint16_t>(msg::Kind::Wave);
    const Result<Age> age = gate_.admit(from, kind, wave.value().route, bytes);
    if (!age) return age.error();
    if (age.value() == Age::Stale) drop(wave.value());
    if (age.value() != Age::Current) return {};
    if (queue_.size() >= kPoolSlotsMax) {
        return Error{Errc::Protocol, "more waves wait than tensors can be on their way"};
    }
    queue_.push_back(wave.value());
    return advance();
}

Status SegmentActor::receive_verdict(StageId from, std::span<const std::byte> bytes) {
    if (last() || from != plan_.judge) {
        return Error{Errc::Protocol, "a verdict from stage " + std::to_string(from.value) +
                                         ", which is not the last segment"};
    }
    const Result<msg::Verdict> verdict = decode_message<msg::Verdict>(bytes);
    if (!verdict) return verdict.error();
    if (Status checked = check_message(verdict.value(), limits()); !checked) return checked;
    const auto kind = static_cast<std::uint16_t>(msg::Kind::Verdict);
    const Result<Age> age = gate_.admit(from, kind, verdict.value().route, bytes);
    if (!age) return age.error();
    const std::shared_ptr<RequestState> state = find(verdict.value().route);
    if (age.value() != Age::Current || !state) return {};
    if (Status applied = apply(*state, verdict.value()); !applied) return applied;
    const auto waiting = waiting_begins_.find(state->request());
    if (waiting == waiting_begins_.end()) return advance();
    const control::Begin next = waiting->second;
    return begin(next);
}

Status SegmentActor::receive_stop(StageId from, std::span<const std::byte> bytes) {
    const Result<msg::Stop> stop = decode_message<msg::Stop>(bytes);
    if (!stop) return stop.error();
    const auto kind = static_cast<std::uint16_t>(msg::Kind::Stop);
    const Result<Age> age = gate_.admit(from, kind, stop.value().route, bytes);
    if (!age) return age.error();
    if (age.value() != Age::Current) return {};
    const std::shared_ptr<RequestState> state = find(stop.value().route);
    if (!state) return {};
    state->stop();
    if (running_ && running_->state == state) running_->cancel.cancel();
    return advance();
}

Status SegmentActor::apply(RequestState& state, const msg::Verdict& verdict) {
    const Result<TreeStep> step = state.apply(verdict);
    if (!step) return step.error();
    if (first()) dispatcher_->follow(state.request(), step.value(), context_->now());
    const bool runs_for_it = running_ && running_->state.get() == &state;
    if (runs_for_it && !alive(state, running_->wave)) running_->cancel.cancel();
    return {};
}

}  // namespace paceline
