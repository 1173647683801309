#include "actors/target/segment_actor.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "actors/protocol/counters.hpp"
#include "actors/target/segment_run.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

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
    if (plan_.exit) early_ = std::make_unique<EarlyVerify>(backend_, *plan_.exit);
}

/// The context, and with it the tensors that the queue names, may be gone already.
SegmentActor::~SegmentActor() {
    queue_.forget_all();
}

void SegmentActor::on_start(StageContext& context) {
    context_ = &context;
    outbox_.emplace(context);
    connect_tensors();
}

/// Fetches the ends of the tensor pools. A neighbour that is lost has none: then nothing is
/// passed on until it has joined.
void SegmentActor::connect_tensors() {
    if (!first()) in_ = context_->tensors_from(*plan_.previous);
    if (last()) return;
    out_ = context_->tensors_to(*plan_.next);
    const std::size_t wave_bytes =
        kWaveRowsMax * static_cast<std::size_t>(backend_.config().dim) * sizeof(float);
    PACE_CHECK(out_ == nullptr || out_->slot_bytes() >= wave_bytes,
               "a tensor slot is smaller than a wave");
}

void SegmentActor::report(const Status& status) {
    if (!status) context_->fail(status.error());
}

MessageLimits SegmentActor::limits() const {
    return {.vocab_size = backend_.config().vocab_size,
            .kv_slots = backend_.kv_slots(),
            .context = backend_.kv_slots()};
}

std::shared_ptr<RequestState> SegmentActor::find(RequestId request, Attempt attempt) const {
    const auto found = requests_.find(request);
    if (found == requests_.end()) return nullptr;
    const bool current = found->second->attempt() == attempt;
    return current || planted(PlantedBug::GateIgnoresAttempt) ? found->second : nullptr;
}

/// Whether decoding goes on without it.
bool SegmentActor::is_hinter(StageId peer) const {
    return peer == plan_.draft ||
           std::find(plan_.hinters.begin(), plan_.hinters.end(), peer) != plan_.hinters.end();
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

void SegmentActor::on_peer(StageId peer, PeerChange change) {
    if (change == PeerChange::Lost) {
        outbox_->forget(peer);
        gate_.forget(peer);
    }
    if (is_hinter(peer)) {
        if (first() && peer == plan_.draft) {
            dispatcher_->draft_changed(change == PeerChange::Joined);
        }
        return report(advance());
    }
    if (peer == plan_.previous) {
        in_ = nullptr;
        queue_.forget_all();  // what is queued names tensors that are gone
    }
    if (peer == plan_.next) {
        out_ = nullptr;
        out_slot_.reset();
    }
    Status status = void_attempts();
    connect_tensors();
    if (status.ok()) status = advance();
    report(status);
}

/// No attempt that is known here can be continued: the conductor raises them all, and posts the
/// next Begin only after this stage was told that the peer has joined.
Status SegmentActor::void_attempts() {
    for (const auto& [id, state] : requests_) state->stop();
    if (running_) running_->cancel.cancel();
    parked_.reset();
    formed_.reset();
    // What came ahead of its Begin is of an attempt that is still to come.
    queue_.drop_if(
        [this](const WaitingPart& part) {
            return gate_.age(part.part.request, part.part.attempt) != Age::Early;
        },
        queue_rules());
    for (const auto& [id, begin] : std::exchange(waiting_begins_, {}))
        gate_.begun(id, begin.attempt);
    show_gauges();
    return receive_due();
}

Status SegmentActor::receive(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    switch (static_cast<msg::Kind>(kind)) {
        case msg::Kind::Proposal:
            return receive_proposal(from, bytes);
        case msg::Kind::Wave:
            return receive_wave(from, bytes);
        case msg::Kind::TensorNote:
            return Error{Errc::Protocol, "stage " + std::to_string(from.value) +
                                             " sent a segment a tensor note; only the hidden "
                                             "states of waves are expected"};
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
    Request& request = decoded.value();
    // The dispatcher decides what is reused: it may have given the slots to somebody else. The
    // other segments learn it from the place where the first wave starts.
    if (first() && !dispatcher_->holds(begin.request)) request.reuse = 0;
    if (Status valid = validate(request, backend_.config().vocab_size, backend_.kv_slots());
        !valid) {
        return valid;
    }
    if (must_wait(begin.request, request)) {
        waiting_begins_.insert_or_assign(begin.request, begin);
        return {};
    }
    waiting_begins_.erase(begin.request);
    if (Status reusable = check_reuse(begin.request, request); !reusable) return reusable;
    return open(begin, std::move(decoded).value());
}

/// Whether a Begin came ahead of something that is on its way to here: a verdict that it builds
/// on, or the end of another request (a verdict or Stop) whose place it takes.
bool SegmentActor::must_wait(RequestId id, const Request& request) const {
    const auto before = requests_.find(id);
    const bool known = before != requests_.end();
    if (known && before->second->slots().size() < static_cast<std::size_t>(request.reuse)) {
        return true;
    }
    const auto others = [&](bool over) {
        return std::any_of(requests_.begin(), requests_.end(), [&](const auto& entry) {
            return entry.first != id && entry.second->over() == over;
        });
    };
    if (!others(false)) return false;  // there is nothing to wait for
    if (!known && requests_.size() >= kStatesMax && !others(true)) return true;
    return first() && !dispatcher_->has_room(id, request);
}

Status SegmentActor::begin_waiting() {
    const std::map<RequestId, control::Begin> waiting = waiting_begins_;
    for (const auto& [id, next] : waiting) {
        if (Status begun = begin(next); !begun) return begun;
    }
    return {};
}

Status SegmentActor::check_reuse(RequestId id, const Request& request) const {
    if (request.reuse == 0) return {};
    const auto held = requests_.find(id);
    const bool here = held != requests_.end() && held->second->spec().context == request.context &&
                      std::equal(request.text.begin(), request.text.begin() + request.reuse,
                                 held->second->text().begin());
    if (here) return {};
    return Error{Errc::Protocol, "request " + std::to_string(id.value) + " reuses " +
                                     std::to_string(request.reuse) +
                                     " positions that this stage does not hold"};
}

Status SegmentActor::open(const control::Begin& begin, Request request) {
    const auto before = requests_.find(begin.request);
    if (before == requests_.end() && requests_.size() >= kStatesMax && !forget_oldest()) {
        return Error{Errc::OutOfMemory,
                     "more than " + std::to_string(kStatesMax) + " requests at once"};
    }
    const TreeRole role = first() ? TreeRole::Names : TreeRole::Follows;
    const RequestState* held = before == requests_.end() ? nullptr : before->second.get();
    const auto state = std::make_shared<RequestState>(begin.request, begin.attempt,
                                                      std::move(request), role, held);
    if (first()) {
        if (Status placed = dispatcher_->begin(state, context_->now()); !placed) return placed;
    }
    requests_[begin.request] = state;
    cancel_if_moot();
    std::erase(begun_, begin.request);
    begun_.push_back(begin.request);
    gate_.begun(begin.request, begin.attempt);
    fault_point(FaultPoint::BeginTaken);
    show_gauges();
    if (Status done = receive_due(); !done) return done;
    return advance();
}

/// Forgets the request that is over and was begun longest ago.
bool SegmentActor::forget_oldest() {
    for (auto id = begun_.begin(); id != begun_.end(); ++id) {
        const auto found = requests_.find(*id);
        if (found == requests_.end() || !found->second->over()) continue;
        requests_.erase(found);
        begun_.erase(id);
        return true;
    }
    return false;
}

/// Handles what came ahead of its Begin.
Status SegmentActor::receive_due() {
    for (const InboxGate::Held& message : gate_.take_due()) {
        if (Status done = receive(message.from, message.kind, message.bytes); !done) return done;
    }
    return {};
}

Result<Age> SegmentActor::admit(StageId from,
                                std::uint16_t kind,
                                const msg::Route& route,
                                std::span<const std::byte> bytes) {
    Result<Age> age = gate_.admit(from, kind, route, bytes);
    if (age.ok() && age.value() == Age::Stale) count_fenced(*context_, from, kind, route);
    return age;
}

Status SegmentActor::receive_proposal(StageId from, std::span<const std::byte> bytes) {
    if (!first()) {
        return Error{Errc::Protocol, "a proposal from stage " + std::to_string(from.value) +
                                         " to a segment that dispatches nothing"};
    }
    const Result<msg::Proposal> proposal = decode_message<msg::Proposal>(bytes);
    if (!proposal) return proposal.error();
    if (Status checked = check_message(proposal.value(), limits()); !checked) return checked;
    const auto kind = static_cast<std::uint16_t>(msg::Kind::Proposal);
    const msg::Route& route = proposal.value().route;
    const Age age = gate_.admit_hint(from, kind, route, bytes);
    if (age == Age::Stale) count_fenced(*context_, from, kind, route);
    if (age != Age::Current) return {};
    const auto speaker =
        from == plan_.draft ? Dispatcher::Speaker::Draft : Dispatcher::Speaker::Other;
    dispatcher_->propose(proposal.value(), speaker, context_->now());
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
    if (queue_.size() + kWavePartsMax > kPoolSlotsMax) {
        return Error{Errc::Protocol, "more waves wait than tensors can be on their way"};
    }
    const msg::Wave& arrived = wave.value();
    const auto tensor = std::make_shared<TensorShare>(
        in_, PoolRef{.index = arrived.tensor, .generation = arrived.tensor_generation});
    std::uint32_t first_row = 0;
    for (std::uint32_t i = 0; i < arrived.part_count; ++i) {
        Result<WaitingPart> part = split(arrived, i, first_row, tensor);
        if (!part) return part.error();
        first_row += arrived.parts[i].rows;
        const msg::Route route{.request = arrived.parts[i].request,
                               .attempt = arrived.parts[i].attempt,
                               .epoch = arrived.epoch};
        if (gate_.look(from, route) == Age::Stale) {
            count_fenced(*context_, from, static_cast<std::uint16_t>(msg::Kind::Wave), route);
            drop(part.value());
        } else {
            queue_.push(std::move(part).value());
        }
    }
    return advance();
}

/// One part of a wave, to wait for its turn. A held one gets a copy of its hidden states: it may
/// wait for long, and a tensor slot that it kept would be missed.
Result<WaitingPart> SegmentActor::split(const msg::Wave& wave,
                                        std::uint32_t index,
                                        std::uint32_t first_row,
                                        const std::shared_ptr<TensorShare>& tensor) {
    WaitingPart part{.part = wave.parts[index],
                     .tensor = tensor,
                     .first_row = first_row,
                     .tensor_rows = wave.row_count};
    const auto rows = std::span{wave.rows}.subspan(first_row, part.part.rows);
    part.rows.assign(rows.begin(), rows.end());
    if (part.part.hold == 0) return part;
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const auto viewed = tensor->view(wave.row_count * dim * sizeof(float));
    if (!viewed) return viewed.error();
    part.hidden.resize(rows.size() * dim);
    std::memcpy(part.hidden.data(), viewed.value().subspan(first_row * dim * sizeof(float)).data(),
                part.hidden.size() * sizeof(float));
    part.tensor.reset();
    part.run_by = context_->now() + plan_.hold_limit;
    return part;
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
    const Result<Age> age = admit(from, kind, verdict.value().route, bytes);
    if (!age) return age.error();
    const msg::Route& route = verdict.value().route;
    const std::shared_ptr<RequestState> state = find(route.request, route.attempt);
    if (age.value() != Age::Current || !state) return {};
    if (Status applied = apply(*state, verdict.value()); !applied) return applied;
    if (Status begun = begin_waiting(); !begun) return begun;
    return advance();
}

Status SegmentActor::receive_stop(StageId from, std::span<const std::byte> bytes) {
    const Result<msg::Stop> stop = decode_message<msg::Stop>(bytes);
    if (!stop) return stop.error();
    const auto kind = static_cast<std::uint16_t>(msg::Kind::Stop);
    const Result<Age> age = admit(from, kind, stop.value().route, bytes);
    if (!age) return age.error();
    msg::Route route = stop.value().route;
    if (age.value() == Age::Stale && planted(PlantedBug::StopIgnoresAttempt) &&
        requests_.contains(route.request)) {
        route.attempt = requests_.at(route.request)->attempt();
    } else if (age.value() != Age::Current) {
        return {};
    }
    const std::shared_ptr<RequestState> state = find(route.request, route.attempt);
    if (!state) return {};
    state->stop();
    cancel_if_moot();
    show_gauges();
    if (Status begun = begin_waiting(); !begun) return begun;
    return advance();
}

Status SegmentActor::apply(RequestState& state, const msg::Verdict& verdict) {
    const Result<TreeStep> step = state.apply(verdict);
    if (!step) return step.error();
    if (early_) early_->learn(state);
    if (first()) {
        const Outcome outcome = dispatcher_->follow(state.request(), step.value(), context_->now());
        count_outcome(state, step.value(), outcome);
    }
    cancel_if_moot();
    if (state.over()) show_gauges();
    return {};
}

/// What a verdict says of the guesses that the first segment sent.
void SegmentActor::count_outcome(const RequestState& state,
                                 const TreeStep& step,
                                 const Outcome& outcome) {
    context_->count(counters::kRowsWasted, step.dropped.size());
    const auto by_exit = [](const TreeNode& node) { return node.origin == msg::Origin::Exit; };
    const auto right = std::count_if(step.committed.begin(), step.committed.end(), by_exit);
    // What hung below a wrong one was not judged: waste, but no prediction.
    const auto wrong =
        std::count_if(step.dropped.begin(), step.dropped.end(), [&](const TreeNode& node) {
            return by_exit(node) &&
                   std::any_of(step.committed.begin(), step.committed.end(),
                               [&](const TreeNode& kept) { return kept.id == node.parent; });
        });
    context_->count(counters::kEarlyProposed, static_cast<std::uint64_t>(right + wrong));
    context_->count(counters::kEarlyRight, static_cast<std::uint64_t>(right));
    if (!state.over() && !outcome.open) count_outcome(outcome);
}

void SegmentActor::count_outcome(const Outcome& outcome) {
    context_->count(outcome.prepared ? counters::outcome_of(outcome.origin)
                                     : counters::kOutcomeNone);
}

std::optional<msg::Wave> SegmentActor::form_wave() {
    std::optional<msg::Wave> wave = dispatcher_->next_wave(context_->now());
    for (const Outcome& outcome : dispatcher_->take_settled()) count_outcome(outcome);
    return wave;
}

}  // namespace paceline
