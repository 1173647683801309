#include "actors/segment/segment_actor.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>
#include <variant>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {
namespace {

/// Parts in the queue beyond which none is held.
constexpr std::size_t kHeldPartsMax = kPoolSlotsMax / 2;

}  // namespace

SegmentActor::SegmentActor(SegmentPlan plan, Backend& backend)
    : plan_{std::move(plan)},
      backend_{backend},
      host_{.limits = {.vocab_size = backend.config().vocab_size,
                       .kv_slots = backend.kv_slots(),
                       .context = backend.kv_slots(),
                       .batch_rows = plan_.dispatch.batch_rows(),
                       .sublayers = static_cast<std::uint32_t>(backend.config().sublayers())}},
      queue_{plan_.dispatch.batch_rows()} {
    attach_roles();
}

void SegmentActor::attach_roles() {
    host_.inbox.attach(*this);
    if (!plan_.previous) {
        const bool lockstep = plan_.exit && plan_.exit->lockstep && plan_.next;
        dispatcher_.emplace(
            host_,
            DispatcherPlan{
                .options = plan_.dispatch, .draft = plan_.draft, .holds_runs_back = lockstep},
            backend_.kv_slots());
        host_.inbox.attach(*dispatcher_);
    }
    if (plan_.exit) {
        early_.emplace(host_, backend_, *plan_.exit,
                       ExitPosition{.segments = plan_.count,
                                    .behind_last = !plan_.next,
                                    .dispatcher = dispatcher_ ? &*dispatcher_ : nullptr,
                                    .first_segment = plan_.first_segment});
        host_.inbox.attach(*early_);
    }
    if (!plan_.next) {
        final_.emplace(host_, backend_, plan_.verify,
                       VerdictReceivers{.all = plan_.verdict_to, .speculative = plan_.speculative});
        host_.inbox.attach(*final_);
    }
    if (plan_.tap) {
        tap_.emplace(host_, backend_, *plan_.tap);
        host_.inbox.attach(*tap_);
    }
    if (plan_.self_draft) {
        PACE_CHECK(dispatcher_.has_value(), "a segment drafts that is not the first one");
        self_.emplace(host_, backend_, *dispatcher_, *plan_.self_draft);
        host_.inbox.attach(*self_);
    }
}

/// The context, and with it the tensors that the queue names, may be gone already.
SegmentActor::~SegmentActor() {
    queue_.forget_all();
    if (running_) running_->forget_tensors();
}

void SegmentActor::on_start(StageContext& context) {
    host_.context = &context;
    host_.outbox.emplace(context);
    host_.inbox.start(context);
    connect_tensors();
}

/// Fetches the ends of the tensor pools. A neighbour that is lost has none: then nothing is
/// passed on until it has joined.
void SegmentActor::connect_tensors() {
    if (plan_.previous) in_ = host_.context->tensors_from(*plan_.previous);
    if (!plan_.next) return;
    out_ = host_.context->tensors_to(*plan_.next);
    const std::size_t batch_bytes =
        host_.limits.batch_rows * static_cast<std::size_t>(backend_.config().dim) * sizeof(float);
    PACE_CHECK(out_ == nullptr || out_->slot_bytes() >= batch_bytes,
               "a tensor slot is smaller than a batch");
}

void SegmentActor::report(const Status& status) {
    if (!status) host_.context->fail(status.error());
}

// ---- The inbox

void SegmentActor::on_control(StageId /*from*/, const control::Message& message) {
    if (const auto* begun = std::get_if<control::Begin>(&message)) report(begin(*begun));
}

void SegmentActor::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    Status status = host_.inbox.deliver(from, kind, bytes);
    if (status.ok()) status = advance();
    report(status);
}

void SegmentActor::on_room(StageId /*to*/) {
    if (tap_) tap_->flush();
    report(advance());
}

void SegmentActor::on_peer(StageId peer, PeerChange change) {
    if (change == PeerChange::Lost) {
        host_.outbox->forget(peer);
        host_.inbox.gate.forget(peer);
    }
    if (tap_ && peer == plan_.tap->draft) tap_->forget();
    if (dispatcher_) dispatcher_->peer_changed(peer, change);
    const std::vector<StageId>& speculative = plan_.speculative;
    if (peer == plan_.draft ||
        std::find(speculative.begin(), speculative.end(), peer) != speculative.end()) {
        return report(advance());
    }
    if (peer == plan_.previous) {
        in_ = nullptr;
        queue_.forget_all();  // what is queued names tensors that are gone
        if (running_) running_->forget_tensors();
    }
    if (peer == plan_.next) {
        out_ = nullptr;
        out_slot_.reset();
    }
    Status status = drop_cancelled();
    connect_tensors();
    if (status.ok()) status = advance();
    report(status);
}

/// No attempt that is known here can be continued: the conductor raises them all, and posts the
/// next Begin only after this stage was told that the peer has joined.
Status SegmentActor::drop_cancelled() {
    host_.requests.stop_all();
    if (running_) running_->cancel.cancel();
    if (dispatcher_) dispatcher_->drop_work();
    InboxGate& gate = host_.inbox.gate;
    // Parts that arrived before their Begin belong to a future attempt: they are kept.
    queue_.drop_if([&gate](const WaitingPart& part) {
        return gate.age(part.part.request, part.part.attempt) != Age::Early;
    });
    for (const auto& [id, begin] : std::exchange(waiting_begins_, {}))
        gate.begun(id, begin.attempt);
    gate.all_ended();
    show_gauges();
    return host_.inbox.deliver_due();
}

// ---- Requests

Status SegmentActor::begin(const control::Begin& begin) {
    if (!host_.inbox.gate.is_news(begin.request, begin.attempt)) return {};
    Result<Request> decoded = decode_request(begin.payload);
    if (!decoded) return decoded.error();
    Request& request = decoded.value();
    // The dispatcher decides what is reused: it may have given the slots to another request. The
    // other segments learn it from the place where the first batch starts.
    if (dispatcher_ && !dispatcher_->scheduler().holds(begin.request)) request.reuse = 0;
    if (Status valid = validate(request, backend_.config().vocab_size, backend_.kv_slots());
        !valid) {
        return valid;
    }
    const bool has_room = !dispatcher_ || dispatcher_->scheduler().has_room(begin.request, request);
    if (host_.requests.must_wait(begin.request, request, has_room)) {
        waiting_begins_.insert_or_assign(begin.request, begin);
        return {};
    }
    waiting_begins_.erase(begin.request);
    Status reusable = host_.requests.check_reuse(begin.request, request);
    return reusable.ok() ? open(begin, std::move(request)) : reusable;
}

Status SegmentActor::begin_waiting() {
    const std::map<RequestId, control::Begin> waiting = waiting_begins_;
    for (const auto& [id, next] : waiting) {
        if (Status begun = begin(next); !begun) return begun;
    }
    return {};
}

Status SegmentActor::open(const control::Begin& begin, Request request) {
    const TreeRole role = dispatcher_ ? TreeRole::Names : TreeRole::Follows;
    const auto made = host_.requests.make(begin, std::move(request), role);
    if (!made) return made.error();
    if (dispatcher_) {
        if (Status placed = dispatcher_->begin(made.value()); !placed) return placed;
    }
    if (self_) self_->begin(made.value());
    host_.requests.add(made.value());
    cancel_if_stale();
    host_.inbox.gate.begun(begin.request, begin.attempt);
    fault_point(FaultPoint::BeginTaken);
    show_gauges();
    if (Status done = host_.inbox.deliver_due(); !done) return done;
    return advance();
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
    report(begin_waiting());  // their Begins are not this sender's
    return {};
}

Status SegmentActor::apply(RequestState& state, const msg::Verdict& verdict) {
    const Result<TreeStep> step = state.apply(verdict);
    if (!step) return step.error();
    if (tap_) tap_->follow(verdict);
    if (early_) early_->follow(state);
    if (dispatcher_) dispatcher_->follow(state, step.value());
    if (self_) self_->follow(state, step.value());
    cancel_if_stale();
    if (!state.over()) return {};
    host_.inbox.gate.ended(state.request());
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
    host_.inbox.gate.stopped(route.request, route.attempt);
    // A waiting Begin may be of a later attempt than this Stop.
    const auto waiting = waiting_begins_.find(route.request);
    if (waiting != waiting_begins_.end() && waiting->second.attempt <= route.attempt)
        waiting_begins_.erase(waiting);
    const auto state = host_.requests.latest(route.request);
    if (!state) return {};
    state->stop();
    cancel_if_stale();
    show_gauges();
    report(begin_waiting());
    return {};
}

// ---- Batches

Status SegmentActor::handle(StageId from, const msg::Batch& batch) {
    if (from != plan_.previous) {
        return Error{Errc::Protocol,
                     fmt::format("a batch from stage {}, which is not the segment before this one",
                                 from.value)};
    }
    if (Status checked = check_message(batch, host_.limits); !checked) return checked;
    if (queue_.size() + kBatchPartsMax > kPoolSlotsMax) {
        return Error{Errc::Protocol, "more batches wait than tensors can be on their way"};
    }
    const auto tensor = std::make_shared<TensorShare>(
        in_, PoolRef{.index = batch.tensor, .generation = batch.tensor_generation});
    std::uint32_t first_row = 0;
    for (std::uint32_t i = 0; i < batch.parts.size(); ++i) {
        Result<WaitingPart> part = split(batch, i, first_row, tensor);
        if (!part) return part.error();
        first_row += batch.parts[i].rows;
        const msg::Route route{.request = batch.parts[i].request,
                               .attempt = batch.parts[i].attempt,
                               .epoch = batch.epoch};
        if (host_.inbox.peek<msg::Batch>(from, route) == Age::Stale) {
            SegmentQueue::drop(part.value());
        } else {
            queue_.push(std::move(part).value());
        }
    }
    return {};
}

/// One part of a batch, to wait until it can run. A held one gets a copy of its hidden states: it may
/// wait for long, and would keep a tensor slot that the segment before needs. Where too many wait it is
/// not held: then every part that waits has a slot, and the segment before has no more than there are.
Result<WaitingPart> SegmentActor::split(const msg::Batch& batch,
                                        std::uint32_t index,
                                        std::uint32_t first_row,
                                        const std::shared_ptr<TensorShare>& tensor) {
    WaitingPart part{
        .part = batch.parts[index], .tensor = tensor, .tensor_rows = batch.tensor_rows};
    const auto rows = std::span{batch.rows}.subspan(first_row, part.part.rows);
    part.rows.assign(rows.begin(), rows.end());
    part.drawn_below = drawn_below(batch, first_row, part.part.rows);
    if (part.part.hold == 0) return part;
    if (queue_.size() >= kHeldPartsMax) {
        part.part.hold = 0;
        return part;
    }
    Result<std::shared_ptr<RowMemory>> copied = copy_of(part);
    if (!copied) return copied.error();
    part.copied = std::move(copied).value();
    for (std::uint32_t i = 0; i < part.part.rows; ++i) part.rows[i].tensor_row = i;
    part.tensor.reset();
    part.run_by = host_.context->now() + plan_.hold_limit;
    return part;
}

/// The part's rows, in memory that no other part uses.
Result<std::shared_ptr<RowMemory>> SegmentActor::copy_of(const WaitingPart& part) {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const auto viewed = part.tensor->view(part.tensor_rows * dim);
    if (!viewed) return viewed.error();
    std::vector<RowSource> rows;
    for (const msg::BatchRow& row : part.rows) rows.push_back({viewed.value(), row.tensor_row});
    const auto unused = std::find_if(copies_.begin(), copies_.end(),
                                     [](const auto& memory) { return memory.use_count() == 1; });
    const auto memory =
        unused != copies_.end() ? *unused : copies_.emplace_back(std::make_shared<RowMemory>());
    backend_.gather(rows, backend_.rows_of(*memory, rows.size()));
    return memory;
}

}  // namespace paceline
