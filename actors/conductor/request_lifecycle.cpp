#include "actors/conductor/request_lifecycle.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

RequestLifecycle::RequestLifecycle(const ConductorPlan& plan, int vocab_size, std::int32_t kv_slots)
    : verifier_{plan.verifier},
      recovery_limit_{plan.recovery_limit},
      stages_{plan.begin_to},
      requests_{vocab_size, kv_slots, plan.acceptance, plan.context},
      quarantine_{plan.poison_limit},
      drafts_{plan, stages_, requests_,
              [this](RequestId request, const RequestRecord& record, StageId to) {
                  post_begin(request, record, to);
              }},
      deadlines_{plan.recovery_limit, [this](RequestId request) { end_unrecovered(request); }},
      progress_{plan.progress, plan.rows_done,
                [this](const std::vector<ProgressWatch::Overdue>& overdue) {
                    for (const ProgressWatch::Overdue& each : overdue) give_up_attempt(each);
                    begin_waiting();
                }} {}

// ---- Beginning

void RequestLifecycle::start(StageContext& context) {
    context_ = &context;
    drafts_.start(context);
}

void RequestLifecycle::accepted(RequestId request) {
    if (!stages_.is_pipeline_whole()) deadlines_.start(*context_, request);
    begin_waiting();
}

void RequestLifecycle::begin_waiting() {
    if (context_ == nullptr || !stages_.is_pipeline_whole()) return;
    deadlines_.stop_all();
    const std::vector<RequestId> waiting = requests_.in_phase(RequestPhase::Waiting);
    const std::vector<RequestId> running = requests_.in_phase(RequestPhase::Running);
    for (const RequestId request : quarantine_.may_begin(waiting, running)) {
        RequestRecord& record = requests_.at(request);
        const bool waits =
            order_.waits_for_end(record) && !requests_.in_phase(RequestPhase::Running).empty();
        if (!waits && requests_.fits(request)) {
            begin(request, record);
        } else if (!order_.may_pass(record, context_->now())) {
            break;
        }
    }
    show_gauges();
}

void RequestLifecycle::post_begin(RequestId request, const RequestRecord& record, StageId to) {
    if (stages_.is_lost(to)) return;  // a draft: it gets this when it has joined
    BeginPayload spec = requests_.begin_of(request, record);
    const StageTable::Stage* stage = stages_.find(to);
    const bool uses_it = to == verifier_ || (stage != nullptr && !stage->essential);
    if (uses_it && spec.compiled != nullptr) grammars_.add(to, *spec.compiled, spec);
    context_->post(to, control::Begin{request, record.attempt, encode_begin(spec)});
}

void RequestLifecycle::begin(RequestId request, RequestRecord& record) {
    const BeginPayload spec = requests_.begin_of(request, record);
    const auto rows = static_cast<std::int32_t>(spec.text.size());
    order_.left(record);
    if (std::exchange(record.preempted, false)) {
        context_->trace({.kind = TraceKind::Replay, .request = request, .attempt = record.attempt});
    } else if (record.begun) {
        ++record.stats.replays;
        context_->count(counters::kReplays);
        context_->trace(
            {.kind = TraceKind::Replay,
             .request = request,
             .attempt = record.attempt,
             .position = static_cast<Position>(requests_.log().answer(request).size())});
    } else {
        record.begun = true;
        record.stats.begun = context_->now();
        record.stats.prompt_tokens = rows;
    }
    record.phase = RequestPhase::Running;
    // Drafts come last, so that sending to them does not delay the segments.
    if (planted(PlantedBug::DraftToldFirst)) drafts_.post_allowed();
    for (const StageTable::Stage& to : stages_.all()) {
        if (to.essential) post_begin(request, record, to.id);
    }
    drafts_.post_allowed();
    record.answered = false;
    progress_.begun(*context_, request, rows);
}

// ---- Stages are lost and join

void RequestLifecycle::stage_lost(StageId peer) {
    const StageTable::Stage* lost = stages_.find(peer);
    if (lost == nullptr) return;
    const bool is_news = stages_.lose(peer);
    stops_.forget(peer);
    drafts_.forget(peer);
    grammars_.forget(peer);
    if (!is_news)
        return;  // its next incarnation died before it was at work: no request ran with it
    if (lost->essential) return lose_essential(*lost);
    if (!drafts_.lost(*lost)) return;
    quarantine_.lost(peer);
    for (const RequestId request : requests_.in_phase(RequestPhase::Running))
        quarantine_.present_at_draft_loss(request);
}

void RequestLifecycle::stage_joined(StageId peer) {
    const StageTable::Stage* joined = stages_.find(peer);
    if (joined == nullptr) return;
    stages_.join(peer);
    if (joined->essential) return begin_waiting();
    drafts_.post_allowed();  // it has none of the running requests
}

void RequestLifecycle::lose_essential(const StageTable::Stage& lost) {
    quarantine_.lost(lost.id);
    requests_.lose_keys(stages_.is_first_segment(lost.id) ? LostKeys::all()
                                                          : LostKeys{lost.id.value, lost.id.value});
    const std::vector<RequestId> running = requests_.in_phase(RequestPhase::Running);
    for (const RequestId request : running) {
        if (requests_.find_running(request) == nullptr) continue;  // another one's on_end ended it
        replay_later(request, lost, running.size() == 1);
    }
    for (const RequestId request : requests_.in_phase(RequestPhase::Waiting))
        deadlines_.start(*context_, request);
    show_gauges();
}

void RequestLifecycle::replay_later(RequestId request, const StageTable::Stage& lost, bool alone) {
    to_next_attempt(request, requests_.at(request));
    if (quarantine_.present_at_loss(request, alone)) end_poison(request, lost);
}

void RequestLifecycle::end_poison(RequestId request, const StageTable::Stage& lost) {
    const std::size_t losses = quarantine_.losses_of(request);
    for (const StageId stage : quarantine_.explained_by(request)) context_->excuse_loss(stage);
    drafts_.explained(request);
    end(request, FinishReason::Interrupted,
        Error{Errc::PeerGone,
              fmt::format("{} is ended: {} was lost while it alone was running, {} losses in a row "
                          "without a committed token",
                          name_of(request), StageTable::name_of(lost), losses)});
}

void RequestLifecycle::to_next_attempt(RequestId request, RequestRecord& record) {
    send_stop(request, record.attempt);  // otherwise the stages would continue to work on it
    const Result<Attempt> next = requests_.log().restart(request);
    PACE_CHECK(next.ok(), "a request that runs is in the log");
    record.attempt = next.value();
    if (!planted(PlantedBug::OldScoresKept)) record.scores.next_attempt();
    context_->cancel_before(request, record.attempt);
    record.phase = RequestPhase::Waiting;
    drafts_.void_attempt(request);
    progress_.ended(request);
}

void RequestLifecycle::pages_wanted(const control::PagesWanted& wanted) {
    const RequestRecord* record = requests_.find_running(wanted.request);
    if (record == nullptr || record->attempt != wanted.attempt) return;  // it has made room itself
    const std::vector<RequestId> running = requests_.in_phase(RequestPhase::Running);
    // More run there than here: a Stop is on its way, whose pages may be enough.
    if (wanted.running > running.size() || running.size() < 2) return;
    preempt(running.back());
    begin_waiting();
}

void RequestLifecycle::preempt(RequestId request) {
    RequestRecord& record = requests_.at(request);
    ++record.stats.preemptions;
    context_->count(counters::kPreemptions);
    record.preempted = !planted(PlantedBug::PreemptionIsLoss);
    order_.preempted(record);
    to_next_attempt(request, record);
}

void RequestLifecycle::end_unrecovered(RequestId request) {
    end(request, FinishReason::Interrupted,
        Error{Errc::PeerGone,
              fmt::format("{} waited {} ms for {}, which did not come back; try again later",
                          name_of(request), recovery_limit_.count() / 1000, stages_.missing())});
}

// ---- Progress

bool RequestLifecycle::committed(RequestRecord& record, const msg::Verdict& verdict) {
    const RequestId request = verdict.route.request;
    AnswerStats& stats = record.stats;
    if (stats.generated_tokens == 0 && stats.first_token == Micros{0}) {
        stats.prefilled = stats.first_token = context_->now();
        stats.cached_tokens = verdict.cached;
        stats.matched_tokens = verdict.matched;
        stats.prompt_tokens -= verdict.cached;
    }
    stats.verdicts.add(verdict);
    const bool cleared = verdict.count > 0 && quarantine_.cleared(request);
    progress_.verdict(*context_, request);
    // The first verdict of an attempt proves only that its prompt was processed; the next one, that
    // the stages receive verdicts and continue.
    if (record.answered) record.voided = false;
    record.answered = true;
    drafts_.verdict(verdict);
    return cleared;
}

void RequestLifecycle::give_up_attempt(const ProgressWatch::Overdue& overdue) {
    const RequestId request = overdue.request;
    RequestRecord* record = requests_.find_running(request);
    if (record == nullptr) return;  // another one's on_end ended it
    if (!record->voided) {
        record->voided = true;
        requests_.lose_keys(
            LostKeys::all());  // a stage that missed a message may lack cached positions
        return to_next_attempt(request, *record);
    }
    const StageTable::Stage* verifier = stages_.find(verifier_);
    end(request, FinishReason::Interrupted,
        Error{
            Errc::PeerGone,
            fmt::format("{} is ended: no verdict of {} about position {} within {} ms, at most {} "
                        "ms were expected; so it was in the attempt before, and all stages seem to "
                        "be at work",
                        name_of(request),
                        verifier != nullptr ? StageTable::name_of(*verifier) : "the last segment",
                        requests_.log().text(request).size(), overdue.waited.count() / 1000,
                        overdue.limit.count() / 1000)});
}

// ---- Ends

void RequestLifecycle::send_stop(RequestId request, Attempt attempt) {
    const msg::Stop stop{{request, attempt, context_->epoch()}};
    for (const StageTable::Stage& to : stages_.all()) {
        const Status sent = stops_.send(*context_, to.id, stop);
        if (!sent) context_->report_fault(to.id, sent.error());
    }
}

void RequestLifecycle::end(RequestId request, FinishReason finish, const Status& status) {
    RequestRecord& record = requests_.at(request);
    PACE_CHECK(record.phase != RequestPhase::Ended, "an answer ends twice");
    order_.left(record);
    if (record.phase == RequestPhase::Running) {
        order_.ended();
        if (!planted(PlantedBug::EndUntold)) send_stop(request, record.attempt);
        // Its next turn, if there is one, has the next attempt.
        context_->cancel_before(request, Attempt{record.attempt.value + 1});
    }
    record.phase = RequestPhase::Ended;
    quarantine_.forget(request);
    drafts_.ended(request, status.ok() && finish != FinishReason::Interrupted);
    deadlines_.stop(request);
    progress_.ended(request);
    record.stats.finish = finish;
    const AnswerStats stats = record.stats;
    const auto on_end = std::exchange(record.order.on_end, nullptr);
    record.order.on_token = nullptr;
    record.order.on_accepted = nullptr;
    record.order.on_scores = nullptr;
    record.order.cancelled = nullptr;
    if (on_end) on_end(stats, status);  // `record` may be gone now
    begin_waiting();
    drafts_.post_allowed();
    show_gauges();
}

void RequestLifecycle::show_gauges() {
    if (context_ == nullptr) return;
    context_->set(gauges::kRequests, requests_.open_count());
    context_->set(gauges::kQueueDepth, requests_.in_phase(RequestPhase::Waiting).size());
}

}  // namespace paceline
