#include "actors/draft/draft_work.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "actors/draft/set_searcher.hpp"
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
    : plan_{plan}, tools_{std::move(tools)}, stops_{plan_.growth} {
    PACE_CHECK(tools_.model != nullptr || tools_.source, "a draft without a model or a source");
    PACE_CHECK(!tools_.programme || !tools_.search, "a skip set that changes in two ways");
    inbox_.attach(*this);
}

void DraftWork::on_start(StageContext& context) {
    context_ = &context;
    inbox_.start(context);
    show_skip_set();
}

void DraftWork::on_control(StageId /*from*/, const control::Message& message) {
    const auto* begun = std::get_if<control::Begin>(&message);
    if (begun == nullptr) return;
    if (const Status status = begin(*begun); !status) context_->fail(status.error());
}

void DraftWork::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    const Status status = inbox_.deliver(from, kind, bytes);
    if (!status) context_->fail(status.error());
}

void DraftWork::on_peer(StageId peer, PeerChange change) {
    if (change == PeerChange::Lost) inbox_.attempts.forget(peer);
    if (peer != plan_.first_segment && peer != plan_.verifier) return;
    if (peer == plan_.first_segment) account_.price = {};  // the next one counts anew
    // Without these no attempt that is known here can be continued; the next one has its Begin.
    while (!requests_.empty()) stop(requests_.begin()->first);
}

void DraftWork::on_room(StageId to) {
    if (to != plan_.first_segment) return;
    for (const auto& [id, request] : std::map{requests_}) {
        if (request->unsent) send(request, *std::exchange(request->unsent, std::nullopt));
    }
}

// ---- Requests

DraftWork::RequestPtr DraftWork::find(const msg::Route& route) const {
    const auto found = requests_.find(route.request);
    if (found == requests_.end() || found->second->attempt != route.attempt) return nullptr;
    return found->second;
}

bool DraftWork::current(const RequestPtr& request) const {
    const auto found = requests_.find(request->id);
    return found != requests_.end() && found->second == request;
}

Status DraftWork::begin(const control::Begin& begin) {
    Result<BeginPayload> decoded = decode_begin(begin.payload);
    if (!decoded) return decoded.error();
    // Grammars come with Begins, and later ones rely on them: those of stale ones are kept too.
    if (Status taken = grammars_.take(decoded.value()); !taken) return taken;
    if (!inbox_.attempts.is_news(begin.request, begin.attempt)) return {};
    const BeginPayload& spec = decoded.value();
    if (Status valid = validate(spec, plan_.vocab_size, kAnySlots); !valid) return valid;
    if (catch_up(begin, spec)) return inbox_.deliver_due();
    stop(begin.request);
    inbox_.attempts.begun(begin.request, begin.attempt);
    // If there are too many, one of them is over and its Stop is under way. This
    // request continues without proposals.
    if (requests_.size() >= kRequestsMax) return inbox_.deliver_due();
    const auto request = std::make_shared<DraftRequest>(begin, spec, plan_, tools_, account_);
    requests_[begin.request] = request;
    request->cancel.watch(context_->cancel_word(begin.request),
                          CancelBoard::mark_of(begin.request, begin.attempt));
    fault_point(FaultPoint::BeginTaken);
    context_->set(gauges::kRequests, requests_.size());
    continue_request(request);
    return inbox_.deliver_due();
}

/// Its Begin again: the request continues as if no verdict had been missed.
bool DraftWork::catch_up(const control::Begin& begin, const BeginPayload& spec) {
    const RequestPtr request = find({begin.request, begin.attempt, {}});
    if (!request || !request->catch_up(spec.text)) return false;
    inbox_.attempts.begun(begin.request, begin.attempt);
    continue_request(request);
    return true;
}

void DraftWork::stop(RequestId id) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return inbox_.attempts.ended(id);
    const RequestPtr request =
        found->second;  // a job keeps its text and source alive until it ends
    inbox_.attempts.stopped(id, request->attempt);  // also if its Begin was to come once more
    request->cancel.cancel();
    if (pass_ && pass_->requests.size() == 1 && pass_->requests.front() == request) {
        pass_->given_up = true;
        pass_->cancel.cancel();
    }
    if (trial_ && trial_->request == request && !planted(PlantedBug::TrialOutlivesRequest))
        trial_->cancel.cancel();
    requests_.erase(found);
    context_->set(gauges::kRequests, requests_.size());
}

// ---- Messages

Status DraftWork::handle(StageId from, const msg::Verdict& verdict) {
    if (from != plan_.verifier) return unexpected(from, "a verdict, but is not the last segment");
    if (Status checked = check_message(verdict, limits_of(plan_)); !checked) return checked;
    const Result<Age> age = inbox_.admit(from, verdict);
    if (!age) return age.error();
    if (age.value() == Age::Current) follow(verdict);
    return {};
}

Status DraftWork::handle(StageId from, const msg::Stop& stopped) {
    if (from != kConductor) return unexpected(from, "a stop, which only the conductor may send");
    if (inbox_.peek<msg::Stop>(from, stopped.route) == Age::Stale) return {};
    const auto found = requests_.find(stopped.route.request);
    // While it waits for its Begin once more, the filter takes the attempt before for the current
    // one.
    if (found != requests_.end() && found->second->attempt > stopped.route.attempt) return {};
    stop(stopped.route.request);
    inbox_.attempts.stopped(stopped.route.request, stopped.route.attempt);
    return {};
}

/// The newest counts, whichever request it came with.
Status DraftWork::handle(StageId from, const msg::Price& price) {
    if (from != plan_.first_segment)
        return unexpected(from, "a price, but is not the first segment");
    if (Status checked = check_message(price); !checked) return checked;
    if (inbox_.admit_hint(from, price) != Age::Current) return {};
    if (price.generation <= account_.price.generation) return {};
    const bool probe = price.mode == msg::SpeculationMode::Probe;
    if (probe && account_.price.mode != msg::SpeculationMode::Probe)
        account_.rates.shorten_memory();
    const bool other_mode = price.mode != account_.price.mode;
    account_.price = price;
    if (!other_mode) return {};
    for (const auto& [id, request] : std::map{requests_}) continue_request(request);
    return {};
}

/// It stands before the verdict on the same batch; without it the source knows less.
Status DraftWork::handle(StageId from, const msg::OwnTokens& own) {
    if (from != plan_.verifier) return unexpected(from, "own tokens, but is not the last segment");
    if (Status checked = check_message(own, limits_of(plan_)); !checked) return checked;
    if (inbox_.admit_hint(from, own) != Age::Current) return {};
    if (const RequestPtr request = find(own.route)) request->receive_own(own);
    return {};
}

Result<DraftWork::RequestPtr> DraftWork::admit(StageId from, const msg::Proposal& proposal) {
    if (Status checked = check_message(proposal, limits_of(plan_)); !checked)
        return checked.error();
    // Held apart from verdicts, which a flood of proposals must not push out.
    const bool current = inbox_.admit_hint(from, proposal) == Age::Current;
    return current ? find(proposal.route) : nullptr;
}

/// The verdicts before `verdict` were sent while this stage was lost or its ring was full.
void DraftWork::ask_again(const RequestPtr& request, const msg::Verdict& verdict) {
    if (planted(PlantedBug::MissedVerdictUntold)) return stop(request->id);
    request->missed = true;
    request->wanted.clear();
    request->unsent.reset();
    inbox_.attempts.await_again(request->id);
    (void)inbox_.admit(plan_.verifier, verdict);  // it follows what is asked for
    context_->post(kConductor, control::BeginWanted{request->id, request->attempt, verdict.base});
}

void DraftWork::follow(const msg::Verdict& verdict) {
    const RequestPtr request = find(verdict.route);
    if (!request) return;
    const DraftRequest::Fit fit = request->fit(verdict);
    if (fit == DraftRequest::Fit::Old) return;
    if (verdict.finish != FinishReason::None) return stop(request->id);
    if (fit == DraftRequest::Fit::Gap) return ask_again(request, verdict);
    const auto depth = static_cast<std::int32_t>(verdict.depth);
    stops_.verified(static_cast<std::int32_t>(verdict.count) - 1, depth,
                    request->stopped(stops_.now(), depth));
    if (search_ != nullptr) {
        const DraftRequest::Judged judged = request->judged(verdict);
        search_->verified(judged.accepted, judged.drafted);
    }
    request->follow(verdict);
    continue_request(request);
}

}  // namespace paceline
