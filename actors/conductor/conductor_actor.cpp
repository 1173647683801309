#include "actors/conductor/conductor_actor.hpp"

#include <utility>
#include <variant>

#include "actors/conductor/verdict_checks.hpp"
#include "actors/protocol/counters.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

ConductorActor::ConductorActor(const ConductorPlan& plan, int vocab_size, std::int32_t kv_slots)
    : verifier_{plan.verifier},
      cancel_poll_{plan.cancel_poll},
      vocab_size_{vocab_size},
      kv_slots_{kv_slots},
      lifecycle_{plan, vocab_size, kv_slots} {}

void ConductorActor::on_start(StageContext& context) {
    context_ = &context;
    lifecycle_.start(context);
    for (const RequestId request : requests().in_phase(RequestPhase::Waiting)) {
        watch_for_cancel(request, requests().at(request).turn);
    }
    lifecycle_.begin_waiting();
    for (const auto& [period, call] : std::exchange(periodic_, {})) arm(period, call);
}

// ---- Orders of its callers

Result<RequestId> ConductorActor::submit(AnswerOrder order) {
    if (draining_ && !planted(PlantedBug::DrainTakesOrders))
        return Error{Errc::BadArgument, "no further requests are accepted: shutting down"};
    Result<RequestId> accepted = requests().accept(std::move(order));
    if (!accepted || context_ == nullptr) return accepted;  // on_start() goes on from here
    const RequestId request = accepted.value();
    watch_for_cancel(request, requests().at(request).turn);
    lifecycle_.accepted(request);
    return request;
}

void ConductorActor::cancel(RequestId request) {
    const RequestRecord* record = requests().find(request);
    if (record == nullptr || record->phase == RequestPhase::Ended) return;
    lifecycle_.end(request, FinishReason::Interrupted, {});
}

void ConductorActor::drain(Micros limit) {
    draining_ = true;
    const auto give_up = [this] {
        stop_all(Error{Errc::Cancelled, "shutting down: the answer was not finished in time"});
    };
    if (context_ == nullptr) return give_up();
    if (planted(PlantedBug::DrainEndsNothing)) return;
    context_->schedule(limit, give_up);
}

void ConductorActor::stop_all(const Status& status) {
    for (const RequestPhase phase : {RequestPhase::Waiting, RequestPhase::Running}) {
        for (const RequestId request : requests().in_phase(phase)) {
            const RequestRecord* record = requests().find(request);
            if (record == nullptr || record->phase != phase) continue;
            lifecycle_.end(request, FinishReason::Interrupted, status);
        }
    }
}

void ConductorActor::close(RequestId request) {
    requests().close(request);
}

void ConductorActor::leave() {
    PACE_CHECK(context_ != nullptr, "a loop is left that was never entered");
    context_->stop();
}

void ConductorActor::call_every(Micros period, std::function<void()> call) {
    auto shared = std::make_shared<std::function<void()>>(std::move(call));
    if (context_ != nullptr) return arm(period, shared);
    periodic_.emplace_back(period, std::move(shared));
}

void ConductorActor::arm(Micros period, const std::shared_ptr<std::function<void()>>& call) {
    context_->schedule(period, [this, period, call] {
        (*call)();
        arm(period, call);
    });
}

void ConductorActor::watch_for_cancel(RequestId request, std::uint64_t turn) {
    const RequestRecord* record = requests().find_open(request, turn);
    if (record == nullptr || !record->order.cancelled) return;
    context_->schedule(cancel_poll_, [this, request, turn] {
        if (requests().find_open(request, turn) == nullptr || is_cancelled(request, turn)) return;
        watch_for_cancel(request, turn);
    });
}

/// Asks whether the client has gone, and ends the answer if so. Also true if it is over by now.
bool ConductorActor::is_cancelled(RequestId request, std::uint64_t turn) {
    const auto cancelled =
        requests().find_open(request, turn)->order.cancelled;  // it may end this answer itself
    if (!cancelled || !cancelled()) return requests().find_open(request, turn) == nullptr;
    if (requests().find_open(request, turn) != nullptr) cancel(request);
    return true;
}

// ---- Its inbox

void ConductorActor::on_control(StageId from, const control::Message& message) {
    if (const auto* wanted = std::get_if<control::BeginWanted>(&message))
        lifecycle_.drafts().wanted(from, *wanted);
    if (const auto* wanted = std::get_if<control::PagesWanted>(&message))
        lifecycle_.pages_wanted(*wanted);
}

void ConductorActor::on_room(StageId to) {
    lifecycle_.stage_has_room(to);
}

void ConductorActor::on_peer(StageId peer, PeerChange change) {
    if (change == PeerChange::Lost) {
        lifecycle_.stage_lost(peer);
    } else {
        lifecycle_.stage_joined(peer);
    }
}

void ConductorActor::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    const MessageLimits limits{
        .vocab_size = vocab_size_, .kv_slots = kv_slots_, .context = kv_slots_};
    const ReceivedFrame frame{from, context_->epoch_of(from), kind, bytes};
    if (kind == static_cast<std::uint16_t>(msg::Kind::Scores)) {
        const Result<msg::Scores> scores = read_scores(frame, verifier_, limits);
        if (!scores) return context_->report_fault(from, scores.error());
        return follow(scores.value());
    }
    const Result<msg::Verdict> verdict = read_verdict(frame, verifier_, limits);
    if (!verdict) return context_->report_fault(from, verdict.error());
    follow(verdict.value());
}

/// Whether it fits the log of its request; a verdict of another attempt is not checked.
Status ConductorActor::check(const msg::Verdict& verdict, const RequestRecord& record) const {
    if (verdict.route.attempt != record.attempt) return {};
    const RequestId request = verdict.route.request;
    const CommitLog& log = lifecycle_.requests().log();
    const auto length = static_cast<Position>(log.text(request).size());
    FinishRule rule = record.order.request.finish_rule();
    rule.answer_begin = length - static_cast<Position>(log.answer(request).size());
    if (Status placed = check_place(verdict, length, rule); !placed) return placed;
    return record.scores.check(verdict.count);
}

/// Those of an attempt that has ended are dropped.
void ConductorActor::follow(const msg::Scores& scores) {
    const RequestId request = scores.route.request;
    RequestRecord* record = requests().find_running(request);
    if (record == nullptr ||
        (scores.route.attempt != record->attempt && !planted(PlantedBug::OldScoresKept))) {
        return context_->count(counters::kFenced);
    }
    const auto end = static_cast<Position>(requests().log().text(request).size());
    const PlainDecoder::OnScores deliver = record->order.on_scores;
    if (const Status taken = record->scores.take(scores, end, deliver); !taken)
        context_->report_fault(verifier_, taken.error());
}

void ConductorActor::follow(const msg::Verdict& verdict) {
    const RequestId request = verdict.route.request;
    RequestRecord* record = requests().find(request);
    if (record == nullptr || record->phase == RequestPhase::Ended) return;  // it is over
    if (const Status fits = check(verdict, *record); !fits) {
        return context_->report_fault(verifier_, fits.error());
    }
    const Commit commit = requests().log().commit(verdict);
    TraceEvent event{.request = request,
                     .attempt = verdict.route.attempt,
                     .id = verdict.batch.value,
                     .position = verdict.base,
                     .count = verdict.count};
    if (commit.kind == CommitKind::Stale) {
        ++fenced_;
        context_->count(counters::kFenced);
        event.kind = TraceKind::Fenced;
        return context_->trace(event);
    }
    PACE_CHECK(commit.kind == CommitKind::Counts,
               "a verdict was not checked before it is committed");
    event.kind = TraceKind::Commit;
    context_->trace(event);
    context_->count(counters::kTokensCommitted, verdict.count);
    const bool cleared = lifecycle_.committed(*record, verdict);
    const std::uint64_t turn = record->turn;
    deliver_tokens(request, turn, verdict);
    if (const RequestRecord* open = requests().find_open(request, turn))
        lifecycle_.drafts().post_wanted(request, *open);
    if (cleared) lifecycle_.begin_waiting();
}

/// A callback may end this answer or any other, and close them.
void ConductorActor::deliver_tokens(RequestId request,
                                    std::uint64_t turn,
                                    const msg::Verdict& verdict) {
    if (!planted(PlantedBug::CancelUnseen) && is_cancelled(request, turn)) return;
    const AnswerOrder& order = requests().find_open(request, turn)->order;
    const AnswerOrder::OnToken on_token = order.on_token;
    const PlainDecoder::OnScores on_scores = order.on_scores;
    const std::vector<TokenScores> scores =
        requests().find_open(request, turn)->scores.take_answer();
    if (order.on_accepted && verdict.count > 0)
        order.on_accepted(std::span{verdict.origins}.first(verdict.count - 1));
    for (std::uint32_t i = 0; i < verdict.count; ++i) {
        RequestRecord* record = requests().find_open(request, turn);
        if (record == nullptr) return;
        ++record->length;
        ++record->stats.generated_tokens;
        record->stats.last_token = context_->now();
        if (on_scores && i < scores.size())
            on_scores(verdict.base + static_cast<Position>(i), scores[i]);
        if (on_token(verdict.tokens[i]) == Go::On) continue;
        if (requests().find_open(request, turn) != nullptr) cancel(request);
        return;
    }
    if (verdict.finish == FinishReason::None || requests().find_open(request, turn) == nullptr)
        return;
    lifecycle_.end(request, verdict.finish, {});
}

// ---- Access

std::span<const TokenId> ConductorActor::text(RequestId request) const {
    return lifecycle_.requests().text(request);
}

std::vector<LostStage> ConductorActor::lost_stages() const {
    std::vector<LostStage> lost;
    for (const StageTable::Stage& stage : lifecycle_.stages().all()) {
        if (lifecycle_.stages().is_lost(stage.id))
            lost.push_back({StageTable::name_of(stage), stage.essential});
    }
    return lost;
}

std::size_t ConductorActor::open_requests() const {
    return lifecycle_.requests().open_count();
}

}  // namespace paceline
