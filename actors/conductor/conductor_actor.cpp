#include "actors/conductor/conductor_actor.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "actors/protocol/message_checks.hpp"
#include "actors/protocol/request_state.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "model/kv_layout.hpp"

namespace paceline {
namespace {

std::string name_of(RequestId request) {
    return fmt::format("request {}", request.value);
}

std::string name_of(const ConductorPlan::Stage& stage) {
    return stage.name.empty() ? fmt::format("stage {}", stage.id.value) : stage.name;
}

}  // namespace

ConductorActor::ConductorActor(ConductorPlan plan, int vocab_size, std::int32_t kv_slots)
    : plan_{std::move(plan)}, vocab_size_{vocab_size}, kv_slots_{kv_slots} {
    PACE_CHECK(plan_.poison_limit >= 1, "a request cannot be poison before a stage was lost");
}

// ---- Orders

Result<std::vector<TokenId>> ConductorActor::text_of(const AnswerOrder& order) const {
    std::vector<TokenId> text;
    if (order.continues) {
        const auto before = answers_.find(*order.continues);
        if (before == answers_.end() || before->second.phase != Phase::Ended) {
            return Error{Errc::BadArgument, name_of(*order.continues) +
                                                " cannot be continued: it is unknown or not over"};
        }
        const std::span<const TokenId> so_far = this->text(*order.continues);
        text.assign(so_far.begin(), so_far.end());
    }
    text.insert(text.end(), order.request.text.begin(), order.request.text.end());
    return text;
}

Result<RequestId> ConductorActor::submit(AnswerOrder order) {
    if (draining_) return Error{Errc::BadArgument, "no request is taken any more: shutting down"};
    Result<std::vector<TokenId>> text = text_of(order);
    if (!text) return text.error();
    order.request.text = std::move(text).value();
    order.request.replayed = 0;
    order.request.reuse = 0;  // begin() knows what the stages hold by then
    // Caches have whole pages only.
    const std::int32_t kv_slots = kv_slots_ / kKvPageSlots * kKvPageSlots;
    if (Status valid = validate(order.request, vocab_size_, kv_slots); !valid) return valid.error();

    const RequestId request = order.continues.value_or(RequestId{newest_.value + 1});
    const Result<Attempt> attempt = order.continues ? log_.extend(request, order.request.text)
                                                    : log_.open(request, order.request.text);
    if (!attempt) return attempt.error();
    newest_ = std::max(newest_, request);
    Answer& answer = answers_[request];
    // Stages forget, and a cache for another context is laid out in another way.
    const bool held = answer.order.request.context == order.request.context &&
                      turns_ - answer.turn < kReuseTurnsMax;
    answer = {.phase = Phase::Waiting,
              .turn = ++turns_,
              .order = std::move(order),
              .attempt = attempt.value(),
              .length = log_.text(request).size(),
              .held = held ? answer.held : 0};
    answer.order.request.text.clear();
    if (context_ == nullptr) return request;  // on_start() goes on from here
    watch_for_cancel(request, answer.turn);
    if (!pipeline_whole()) watch_recovery(request, answer);
    begin_waiting();
    return request;
}

void ConductorActor::cancel(RequestId request) {
    const auto found = answers_.find(request);
    if (found == answers_.end() || found->second.phase == Phase::Ended) return;
    if (found->second.phase == Phase::Running) send_stop(request, found->second.attempt);
    end(request, FinishReason::Interrupted, {});
}

void ConductorActor::drain(Micros limit) {
    draining_ = true;
    const auto give_up = [this] {
        stop_all(Error{Errc::Cancelled, "shutting down: the answer was not finished in time"});
    };
    if (context_ == nullptr) return give_up();
    context_->schedule(limit, give_up);
}

void ConductorActor::stop_all(const Status& status) {
    for (const Phase phase : {Phase::Waiting, Phase::Running}) {
        for (const RequestId request : in_phase(phase)) {
            const auto found = answers_.find(request);
            if (found == answers_.end() || found->second.phase != phase) continue;
            if (phase == Phase::Running) send_stop(request, found->second.attempt);
            end(request, FinishReason::Interrupted, status);
        }
    }
}

void ConductorActor::close(RequestId request) {
    const auto found = answers_.find(request);
    if (found == answers_.end() || found->second.phase != Phase::Ended) return;
    answers_.erase(found);
    log_.close(request);
}

void ConductorActor::leave() {
    PACE_CHECK(context_ != nullptr, "a loop is left that was never entered");
    context_->stop();
}

// ---- Beginning

void ConductorActor::on_start(StageContext& context) {
    context_ = &context;
    for (const RequestId request : in_phase(Phase::Waiting)) {
        watch_for_cancel(request, answers_.at(request).turn);
    }
    begin_waiting();
}

std::vector<RequestId> ConductorActor::in_phase(Phase phase) const {
    std::vector<std::pair<std::uint64_t, RequestId>> found;
    for (const auto& [request, answer] : answers_) {
        if (answer.phase == phase) found.emplace_back(answer.turn, request);
    }
    std::sort(found.begin(), found.end());
    std::vector<RequestId> requests;
    for (const auto& [turn, request] : found) requests.push_back(request);
    return requests;
}

bool ConductorActor::fits(const Answer& answer) const {
    std::int32_t pages = pages_for(answer.order.request.context);
    for (const auto& [request, other] : answers_) {
        if (other.phase == Phase::Running) pages += pages_for(other.order.request.context);
    }
    return pages <= kv_slots_ / kKvPageSlots;
}

void ConductorActor::begin_waiting() {
    if (context_ == nullptr || !pipeline_whole()) return;
    const std::vector<RequestId> waiting = in_phase(Phase::Waiting);
    for (const RequestId request : waiting) answers_.at(request).timer = 0;
    for (const RequestId request : waiting) {
        Answer& answer = answers_.at(request);
        // Those after it wait too, or a large one would never get its turn.
        if (!fits(answer)) break;
        begin(request, answer);
    }
    show_gauges();
}

/// What the stages are told: prompt and committed tokens, and how many of them are the answer's.
Request ConductorActor::spec_of(RequestId request, const Answer& answer) const {
    Request spec = answer.order.request;
    const std::span<const TokenId> text = log_.text(request);
    const std::size_t committed = log_.answer(request).size();
    const bool forget = planted(PlantedBug::ReplayForgetsCommitted);
    spec.text.assign(text.begin(),
                     text.end() - static_cast<std::ptrdiff_t>(forget ? committed : 0));
    const bool keep_count = !forget && !planted(PlantedBug::ReplayForgetsCount);
    spec.replayed = keep_count ? static_cast<std::int32_t>(committed) : 0;
    // The last token of the text is the root: it is fed with the first wave, so never reused.
    spec.reuse = std::min(answer.held, static_cast<std::int32_t>(spec.text.size()) - 1);
    return spec;
}

void ConductorActor::post_begin(RequestId request, const Answer& answer, StageId to) {
    if (lost_.contains(to)) return;  // a draft: it gets this when it has joined
    context_->post(
        to, control::Begin{request, answer.attempt, encode_request(spec_of(request, answer))});
}

void ConductorActor::begin(RequestId request, Answer& answer) {
    if (answer.begun) {
        ++answer.figures.replays;
        context_->count(counters::kReplays);
        context_->trace({.kind = TraceKind::Replay,
                         .request = request,
                         .attempt = answer.attempt,
                         .position = static_cast<Position>(log_.answer(request).size())});
    } else {
        answer.begun = true;
        answer.figures.begun = context_->now();
        const Request spec = spec_of(request, answer);
        answer.figures.prompt_tokens = static_cast<std::int32_t>(spec.text.size()) - spec.reuse;
    }
    answer.phase = Phase::Running;
    for (const ConductorPlan::Stage& to : plan_.begin_to) post_begin(request, answer, to.id);
    // The first segment may not reuse what it was told to, and a Stop may come before all of it is
    // computed anew: only a verdict proves what the stages hold.
    answer.held = 0;
}

// ---- Stages come and go

const ConductorPlan::Stage* ConductorActor::stage(StageId id) const {
    const auto found =
        std::find_if(plan_.begin_to.begin(), plan_.begin_to.end(),
                     [&](const ConductorPlan::Stage& candidate) { return candidate.id == id; });
    return found == plan_.begin_to.end() ? nullptr : &*found;
}

void ConductorActor::on_peer(StageId peer, PeerChange change) {
    const ConductorPlan::Stage* changed = stage(peer);
    if (changed == nullptr) return;
    if (change == PeerChange::Lost) {
        lost_.insert(peer);
        if (changed->essential) lose_essential(*changed);
        return;
    }
    lost_.erase(peer);
    if (changed->essential) return begin_waiting();
    // It knows nothing of what went on without it.
    for (const RequestId request : in_phase(Phase::Running)) {
        post_begin(request, answers_.at(request), peer);
    }
}

void ConductorActor::lose_essential(const ConductorPlan::Stage& lost) {
    for (auto& [request, answer] : answers_) answer.held = 0;
    for (const RequestId request : in_phase(Phase::Running)) {
        const auto found = answers_.find(request);  // another one's on_end may have ended it
        if (found == answers_.end() || found->second.phase != Phase::Running) continue;
        replay_later(request, lost);
    }
    for (const RequestId request : in_phase(Phase::Waiting)) {
        watch_recovery(request, answers_.at(request));
    }
    show_gauges();
}

void ConductorActor::replay_later(RequestId request, const ConductorPlan::Stage& lost) {
    Answer& answer = answers_.at(request);
    send_stop(request, answer.attempt);  // those that live would work on for nothing
    const Result<Attempt> next = log_.restart(request);
    PACE_CHECK(next.ok(), "a request that runs is in the log");
    answer.attempt = next.value();
    context_->cancel_before(request, answer.attempt);
    answer.phase = Phase::Waiting;
    if (++answer.losses < plan_.poison_limit) return;
    end(request, FinishReason::Interrupted,
        Error{Errc::PeerGone, fmt::format("{} is given up: it was running when {} was lost, the "
                                          "{}. loss in a row without a token in between",
                                          name_of(request), name_of(lost), answer.losses)});
}

void ConductorActor::watch_recovery(RequestId request, Answer& answer) {
    if (answer.timer != 0) return;
    answer.timer = ++timers_;
    context_->schedule(plan_.recovery_limit, [this, request, timer = answer.timer] {
        const auto found = answers_.find(request);
        if (found == answers_.end() || found->second.phase != Phase::Waiting ||
            found->second.timer != timer) {
            return;
        }
        std::string missing;
        for (const ConductorPlan::Stage& candidate : plan_.begin_to) {
            if (!candidate.essential || !lost_.contains(candidate.id)) continue;
            missing += (missing.empty() ? "" : ", ") + name_of(candidate);
        }
        end(request, FinishReason::Interrupted,
            Error{Errc::PeerGone,
                  fmt::format("{} waited {} ms for {}, which did not come back; try again later",
                              name_of(request), plan_.recovery_limit.count() / 1000, missing)});
    });
}

// ---- Verdicts

void ConductorActor::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    if (from != plan_.verifier || kind != static_cast<std::uint16_t>(msg::Kind::Verdict) ||
        bytes.size() != sizeof(msg::Verdict)) {
        return context_->fail(
            {Errc::Protocol, fmt::format("stage {} sent the conductor a message of kind {}; only "
                                         "verdicts of the last segment are expected",
                                         from.value, kind)});
    }
    msg::Verdict verdict;
    std::memcpy(&verdict, bytes.data(), sizeof verdict);
    // A token that no vocabulary has would reach the client, and then make every replay fail.
    const MessageLimits limits{
        .vocab_size = vocab_size_, .kv_slots = kv_slots_, .context = kv_slots_};
    if (const Status checked = check_message(verdict, limits); !checked) {
        return context_->fail(
            {checked.error().code, fmt::format("stage {}: {}", from.value, checked.error().what)});
    }
    follow(verdict);
}

void ConductorActor::follow(const msg::Verdict& verdict) {
    const RequestId request = verdict.route.request;
    const auto found = answers_.find(request);
    if (found == answers_.end() || found->second.phase == Phase::Ended) return;  // it is over
    Answer& answer = found->second;
    const Commit commit = log_.commit(verdict);
    TraceEvent event{.request = request,
                     .attempt = verdict.route.attempt,
                     .id = verdict.wave.value,
                     .position = verdict.base,
                     .count = verdict.count};
    if (commit.kind == CommitKind::Stale) {
        ++fenced_;
        context_->count(counters::kFenced);
        event.kind = TraceKind::Fenced;
        return context_->trace(event);
    }
    if (commit.kind == CommitKind::Gap) {
        return context_->fail(
            {Errc::Protocol, fmt::format("a verdict starts at position {}, the log ends at {}",
                                         verdict.base, log_.text(request).size())});
    }
    event.kind = TraceKind::Commit;
    context_->trace(event);
    context_->count(counters::kTokensCommitted, verdict.count);
    AnswerFigures& figures = answer.figures;
    if (figures.generated_tokens == 0) figures.prefilled = figures.first_token = context_->now();
    figures.verdicts.add(verdict);
    if (verdict.count > 0) answer.losses = 0;
    // All committed tokens but the last, the new root, have been through the target.
    answer.held = static_cast<std::int32_t>(log_.text(request).size()) - 1;
    hand_on(request, answer.turn, verdict);
}

/// A callback may end this answer or any other, and close them.
void ConductorActor::hand_on(RequestId request, std::uint64_t turn, const msg::Verdict& verdict) {
    const AnswerOrder::OnToken on_token = find(request, turn)->order.on_token;
    for (std::uint32_t i = 0; i < verdict.count; ++i) {
        Answer* answer = find(request, turn);
        if (answer == nullptr) return;
        ++answer->length;
        ++answer->figures.generated_tokens;
        answer->figures.last_token = context_->now();
        if (on_token(verdict.tokens[i]) == Go::On) continue;
        answer = find(request, turn);
        if (answer == nullptr) return;
        answer->held = std::min(answer->held, static_cast<std::int32_t>(answer->length));
        return cancel(request);
    }
    if (verdict.finish == FinishReason::None || find(request, turn) == nullptr) return;
    end(request, verdict.finish, {});
}

// ---- Ends

ConductorActor::Answer* ConductorActor::find(RequestId request, std::uint64_t turn) {
    const auto found = answers_.find(request);
    if (found == answers_.end() || found->second.turn != turn) return nullptr;
    return found->second.phase == Phase::Ended ? nullptr : &found->second;
}

void ConductorActor::send_stop(RequestId request, Attempt attempt) {
    const msg::Stop stop{{request, attempt, context_->epoch()}};
    for (const ConductorPlan::Stage& to : plan_.begin_to) {
        // Urgent frames have slots of their own; a stage that never empties its ring is dead, and
        // the supervisor says so.
        (void)context_->send(to.id, static_cast<std::uint16_t>(msg::Kind::Stop),
                             std::as_bytes(std::span{&stop, 1}));
    }
}

void ConductorActor::end(RequestId request, FinishReason finish, const Status& status) {
    Answer& answer = answers_.at(request);
    PACE_CHECK(answer.phase != Phase::Ended, "an answer ends twice");
    if (answer.phase == Phase::Running) {
        // Its next turn, if there is one, has the next attempt.
        context_->cancel_before(request, Attempt{answer.attempt.value + 1});
    }
    answer.phase = Phase::Ended;
    answer.figures.finish = finish;
    const AnswerFigures figures = answer.figures;
    const auto on_end = std::exchange(answer.order.on_end, nullptr);
    answer.order.on_token = nullptr;
    answer.order.cancelled = nullptr;
    if (on_end) on_end(figures, status);  // `answer` may be gone now
    begin_waiting();
    show_gauges();
}

void ConductorActor::watch_for_cancel(RequestId request, std::uint64_t turn) {
    const Answer* answer = find(request, turn);
    if (answer == nullptr || !answer->order.cancelled) return;
    context_->schedule(plan_.cancel_poll, [this, request, turn] {
        const Answer* polled = find(request, turn);
        if (polled == nullptr) return;
        const auto cancelled = polled->order.cancelled;
        if (!cancelled()) return watch_for_cancel(request, turn);
        if (find(request, turn) != nullptr) cancel(request);
    });
}

// ---- What it tells

void ConductorActor::show_gauges() {
    if (context_ == nullptr) return;
    context_->set(gauges::kRequests, open_requests());
    context_->set(gauges::kQueueDepth, in_phase(Phase::Waiting).size());
}

std::span<const TokenId> ConductorActor::text(RequestId request) const {
    const auto found = answers_.find(request);
    return found == answers_.end() ? std::span<const TokenId>{}
                                   : log_.text(request).first(found->second.length);
}

std::size_t ConductorActor::open_requests() const {
    return static_cast<std::size_t>(
        std::count_if(answers_.begin(), answers_.end(),
                      [](const auto& entry) { return entry.second.phase != Phase::Ended; }));
}

bool ConductorActor::pipeline_whole() const {
    return std::none_of(
        plan_.begin_to.begin(), plan_.begin_to.end(),
        [&](const ConductorPlan::Stage& to) { return to.essential && lost_.contains(to.id); });
}

std::uint64_t ConductorActor::fenced() const {
    return fenced_;
}

}  // namespace paceline
