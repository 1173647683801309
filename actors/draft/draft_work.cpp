#include "actors/draft/draft_work.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "actors/protocol/counters.hpp"
#include "actors/protocol/message_checks.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/wire/cancel_board.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {
namespace {

constexpr std::int32_t kAnySlots = std::numeric_limits<std::int32_t>::max();

MessageLimits limits_of(const DraftPlan& plan) {
    return {.vocab_size = plan.vocab_size, .kv_slots = kAnySlots, .context = kAnySlots};
}

}  // namespace

Error unexpected(StageId from, const std::string& what) {
    return Error{Errc::Protocol,
                 fmt::format("stage {} sent a speculative stage {}", from.value, what)};
}

DraftWork::DraftWork(DraftPlan plan, DraftTools tools)
    : host_{.plan = plan,
            .tools = std::move(tools),
            .stops = AdaptiveStops{plan.growth},
            .stop = [this](RequestId id) { stop(id); },
            .continue_request = [this](const RequestPtr& request) { continue_request(request); },
            .job_ended =
                [this] {
                    busy_ = false;
                    pump();
                }} {
    PACE_CHECK(host_.tools.model != nullptr || host_.tools.source,
               "a draft without a model or a source");
    host_.account.shares_cores = host_.plan.shares_cores;
    inbox_.attach(*this);
}

void DraftWork::on_start(StageContext& context) {
    host_.context = &context;
    inbox_.start(context);
    skip_sets_.show();
}

void DraftWork::on_control(StageId /*from*/, const control::Message& message) {
    const auto* begun = std::get_if<control::Begin>(&message);
    if (begun == nullptr) return;
    if (const Status status = begin(*begun); !status) host_.context->fail(status.error());
}

void DraftWork::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    const Status status = inbox_.deliver(from, kind, bytes);
    if (!status) host_.context->fail(status.error());
}

void DraftWork::on_peer(StageId peer, PeerChange change) {
    outlet_.peer_changed(peer);
    if (change == PeerChange::Lost) inbox_.attempts.forget(peer);
    if (peer != host_.plan.first_segment && peer != host_.plan.verifier) return;
    if (peer == host_.plan.first_segment) host_.account.price = {};  // the next one counts anew
    // Without these no attempt that is known here can be continued; the next one has its Begin.
    for (const RequestPtr& request : host_.requests.all()) stop(request->id);
}

void DraftWork::on_room(StageId to) {
    outlet_.room(to);
}

// ---- Requests

void DraftWork::continue_request(const RequestPtr& request) {
    steps_.advance(request);
    pump();
}

void DraftWork::pump() {
    if (busy_) return;
    busy_ = skip_sets_.start() || passes_.start() || sources_.start();
}

Status DraftWork::begin(const control::Begin& begin) {
    Result<BeginPayload> decoded = decode_begin(begin.payload);
    if (!decoded) return decoded.error();
    // Grammars come with Begins, and later ones rely on them: those of stale ones are kept too.
    if (Status taken = grammars_.take(decoded.value()); !taken) return taken;
    if (!inbox_.attempts.is_news(begin.request, begin.attempt)) return {};
    const BeginPayload& spec = decoded.value();
    if (Status valid = validate(spec, host_.plan.vocab_size, kAnySlots); !valid) return valid;
    if (catch_up(begin, spec)) return inbox_.deliver_due();
    stop(begin.request);
    inbox_.attempts.begun(begin.request, begin.attempt);
    // If there are too many, one of them is over and its Stop is under way. This
    // request continues without proposals.
    if (host_.requests.size() >= kRequestsMax) return inbox_.deliver_due();
    const auto request =
        std::make_shared<DraftRequest>(begin, spec, host_.plan, host_.tools, host_.account);
    host_.requests.add(request);
    request->source.cancel().watch(host_.context->cancel_word(begin.request),
                                   CancelBoard::mark_of(begin.request, begin.attempt));
    fault_point(FaultPoint::BeginTaken);
    host_.context->set(gauges::kRequests, host_.requests.size());
    continue_request(request);
    return inbox_.deliver_due();
}

/// Its Begin again: the request continues as if no verdict had been missed.
bool DraftWork::catch_up(const control::Begin& begin, const BeginPayload& spec) {
    const RequestPtr request = host_.requests.find({begin.request, begin.attempt, {}});
    if (!request || !request->catch_up(spec.text)) return false;
    inbox_.attempts.begun(begin.request, begin.attempt);
    continue_request(request);
    return true;
}

void DraftWork::stop(RequestId id) {
    // A job keeps its request's text and source alive until it ends.
    const RequestPtr request = host_.requests.latest(id);
    if (!request) return inbox_.attempts.ended(id);
    inbox_.attempts.stopped(id, request->attempt);  // also if its Begin was to come once more
    request->source.cancel().cancel();
    passes_.cancel(request);
    if (!planted(PlantedBug::TrialOutlivesRequest)) skip_sets_.cancel(request);
    host_.requests.erase(id);
    host_.context->set(gauges::kRequests, host_.requests.size());
}

// ---- Messages

Status DraftWork::handle(StageId from, const msg::Verdict& verdict) {
    if (from != host_.plan.verifier)
        return unexpected(from, "a verdict, but is not the last segment");
    if (Status checked = check_message(verdict, limits_of(host_.plan)); !checked) return checked;
    const Result<Age> age = inbox_.admit(from, verdict);
    if (!age) return age.error();
    if (age.value() == Age::Current) follow(verdict);
    return {};
}

Status DraftWork::handle(StageId from, const msg::Stop& stopped) {
    if (from != kConductor) return unexpected(from, "a stop, which only the conductor may send");
    if (inbox_.peek<msg::Stop>(from, stopped.route) == Age::Stale) return {};
    const RequestPtr request = host_.requests.latest(stopped.route.request);
    // While it waits for its Begin once more, the filter takes the attempt before for the current
    // one.
    if (request && request->attempt > stopped.route.attempt) return {};
    stop(stopped.route.request);
    inbox_.attempts.stopped(stopped.route.request, stopped.route.attempt);
    return {};
}

/// The newest counts, whichever request it came with.
Status DraftWork::handle(StageId from, const msg::Price& price) {
    if (from != host_.plan.first_segment)
        return unexpected(from, "a price, but is not the first segment");
    if (Status checked = check_message(price); !checked) return checked;
    if (inbox_.admit_hint(from, price) != Age::Current) return {};
    if (price.generation <= host_.account.price.generation) return {};
    const bool probe = price.mode == msg::SpeculationMode::Probe;
    if (probe && host_.account.price.mode != msg::SpeculationMode::Probe)
        host_.account.rates.shorten_memory();
    const bool other_mode = price.mode != host_.account.price.mode;
    host_.account.price = price;
    if (!other_mode) return {};
    for (const RequestPtr& request : host_.requests.all()) continue_request(request);
    return {};
}

/// It stands before the verdict on the same batch; without it the source knows less.
Status DraftWork::handle(StageId from, const msg::OwnTokens& own) {
    if (from != host_.plan.verifier)
        return unexpected(from, "own tokens, but is not the last segment");
    if (Status checked = check_message(own, limits_of(host_.plan)); !checked) return checked;
    if (inbox_.admit_hint(from, own) != Age::Current) return {};
    if (const RequestPtr request = host_.requests.find(own.route)) request->receive_own(own);
    return {};
}

Result<DraftWork::RequestPtr> DraftWork::admit(StageId from, const msg::Proposal& proposal) {
    if (Status checked = check_message(proposal, limits_of(host_.plan)); !checked)
        return checked.error();
    // Held apart from verdicts, which a flood of proposals must not push out.
    const bool current = inbox_.admit_hint(from, proposal) == Age::Current;
    return current ? host_.requests.find(proposal.route) : nullptr;
}

/// The verdicts before `verdict` were sent while this stage was lost or its ring was full.
void DraftWork::ask_again(const RequestPtr& request, const msg::Verdict& verdict) {
    if (planted(PlantedBug::MissedVerdictUntold)) return stop(request->id);
    request->waits.for_begin = true;
    request->waits.wanted.clear();
    request->unsent.state.reset();
    inbox_.attempts.await_again(request->id);
    (void)inbox_.admit(host_.plan.verifier, verdict);  // it follows what is asked for
    host_.context->post(kConductor,
                        control::BeginWanted{request->id, request->attempt, verdict.base});
}

void DraftWork::follow(const msg::Verdict& verdict) {
    const RequestPtr request = host_.requests.find(verdict.route);
    if (!request) return;
    const DraftRequest::Fit fit = request->fit(verdict);
    if (fit == DraftRequest::Fit::Old) return;
    if (verdict.finish != FinishReason::None) return stop(request->id);
    if (fit == DraftRequest::Fit::Gap) return ask_again(request, verdict);
    const auto depth = static_cast<std::int32_t>(verdict.depth);
    host_.stops.verified(static_cast<std::int32_t>(verdict.count) - 1, depth,
                         request->stopped(host_.stops.now(), depth));
    skip_sets_.verified(request->text->tree, verdict);
    request->follow(verdict);
    continue_request(request);
}

}  // namespace paceline
