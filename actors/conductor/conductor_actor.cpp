#include "actors/conductor/conductor_actor.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>
#include <variant>

#include "actors/conductor/verdict_checks.hpp"
#include "actors/protocol/counters.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "model/kv_layout.hpp"

namespace paceline {
namespace {

/// Interval at which waiting requests are checked.
constexpr Micros kRecoveryStep{2'000'000};

}  // namespace

ConductorActor::ConductorActor(ConductorPlan plan, int vocab_size, std::int32_t kv_slots)
    : plan_{std::move(plan)},
      vocab_size_{vocab_size},
      kv_slots_{kv_slots},
      suspects_{plan_.poison_limit},
      watch_{plan_.progress} {
    for (const ConductorPlan::Stage& each : plan_.begin_to) {
        if (each.essential) continue;
        const StageId home = home_of(each);
        trials_.emplace(home, DraftTrials{home, plan_.poison_limit, plan_.draft_trials});
    }
}

std::string ConductorActor::name_of(RequestId request) {
    return fmt::format("request {}", request.value);
}

std::string ConductorActor::name_of(const ConductorPlan::Stage& stage) {
    return stage.name.empty() ? fmt::format("stage {}", stage.id.value) : stage.name;
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
    for (const RequestId request : suspects_.may_begin(waiting, in_phase(Phase::Running))) {
        Answer& answer = answers_.at(request);
        // Later requests wait too, otherwise a large one would never start.
        if (!fits(answer)) break;
        begin(request, answer);
    }
    show_gauges();
}

/// The payload of a Begin: prompt and committed tokens, and how many of them are the answer's.
BeginPayload ConductorActor::spec_of(RequestId request, const Answer& answer) const {
    BeginPayload spec{answer.order.request};
    const std::span<const TokenId> text = log_.text(request);
    const std::size_t committed = log_.answer(request).size();
    const bool forget = planted(PlantedBug::ReplayForgetsCommitted);
    spec.text.assign(text.begin(),
                     text.end() - static_cast<std::ptrdiff_t>(forget ? committed : 0));
    const bool keep_count = !forget && !planted(PlantedBug::ReplayForgetsCount);
    spec.replayed = keep_count ? static_cast<std::int32_t>(committed) : 0;
    // The last token of the text is the root: it is fed with the first batch, so never reused.
    spec.reuse = std::min(answer.held, static_cast<std::int32_t>(spec.text.size()) - 1);
    spec.acceptance = plan_.acceptance;
    return spec;
}

void ConductorActor::post_begin(RequestId request, const Answer& answer, StageId to) {
    if (lost_.contains(to)) return;  // a draft: it gets this when it has joined
    context_->post(to,
                   control::Begin{request, answer.attempt, encode_begin(spec_of(request, answer))});
}

void ConductorActor::begin(RequestId request, Answer& answer) {
    const BeginPayload spec = spec_of(request, answer);
    const std::int32_t rows = static_cast<std::int32_t>(spec.text.size()) - spec.reuse;
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
        answer.figures.prompt_tokens = rows;
    }
    answer.phase = Phase::Running;
    // Drafts come last, so that sending to them does not delay the segments.
    if (planted(PlantedBug::DraftToldFirst)) tell_drafts();
    for (const ConductorPlan::Stage& to : plan_.begin_to) {
        if (to.essential) post_begin(request, answer, to.id);
    }
    tell_drafts();
    // The first segment may reuse less than that, and a Stop may come before all of it is
    // computed anew: only a verdict proves what the stages hold.
    answer.held = 0;
    answer.answered = false;
    watch_.begun(request, rows, context_->now());
    watch_progress();
}

// ---- Stages are lost and join, and ask for Begins

const ConductorPlan::Stage* ConductorActor::stage(StageId id) const {
    const auto found =
        std::find_if(plan_.begin_to.begin(), plan_.begin_to.end(),
                     [&](const ConductorPlan::Stage& candidate) { return candidate.id == id; });
    return found == plan_.begin_to.end() ? nullptr : &*found;
}

void ConductorActor::on_control(StageId from, const control::Message& message) {
    if (const auto* wanted = std::get_if<control::BeginWanted>(&message)) want_begin(from, *wanted);
}

void ConductorActor::on_peer(StageId peer, PeerChange change) {
    const ConductorPlan::Stage* changed = stage(peer);
    if (changed == nullptr) return;
    if (change == PeerChange::Lost) {
        const bool is_news = lost_.insert(peer).second;
        stops_.forget(peer);
        wanted_.forget(peer);
        if (!is_news)
            return;  // its next incarnation died before it was at work: no request ran with it
        if (changed->essential) return lose_essential(*changed);
        lose_draft(*changed);
        return;
    }
    lost_.erase(peer);
    if (changed->essential) return begin_waiting();
    tell_drafts();  // it has none of the running requests
}

/// A draft has missed a verdict. A request for a Begin of another attempt, or about a request that has ended meanwhile,
/// is ignored.
void ConductorActor::want_begin(StageId from, const control::BeginWanted& wanted) {
    const ConductorPlan::Stage* to = stage(from);
    if (to == nullptr || lost_.contains(from)) return;
    const auto found = answers_.find(wanted.request);
    if (found == answers_.end() || found->second.phase != Phase::Running ||
        found->second.attempt != wanted.attempt) {
        return;
    }
    const Answer& answer = found->second;
    if (to->essential || wanted.position < 1 || wanted.position > answer.order.request.context) {
        return context_->report_fault(
            from,
            {Errc::Protocol, fmt::format("{} asks for {} from position {} on, which is not "
                                         "its to ask",
                                         name_of(*to), name_of(wanted.request), wanted.position)});
    }
    wanted_.want(wanted.request, from, wanted.position);
    tell_wanting(wanted.request, answer);
}

void ConductorActor::tell_wanting(RequestId request, const Answer& answer) {
    const auto length = static_cast<Position>(log_.text(request).size());
    for (const StageId to : wanted_.due(request, length)) post_begin(request, answer, to);
}

void ConductorActor::lose_essential(const ConductorPlan::Stage& lost) {
    suspects_.lost(lost.id);
    for (auto& [request, answer] : answers_) answer.held = 0;
    const std::vector<RequestId> running = in_phase(Phase::Running);
    for (const RequestId request : running) {
        const auto found = answers_.find(request);  // another one's on_end may have ended it
        if (found == answers_.end() || found->second.phase != Phase::Running) continue;
        replay_later(request, lost, running.size() == 1);
    }
    for (const RequestId request : in_phase(Phase::Waiting)) {
        watch_recovery(request, answers_.at(request));
    }
    show_gauges();
}

void ConductorActor::replay_later(RequestId request, const ConductorPlan::Stage& lost, bool alone) {
    Answer& answer = answers_.at(request);
    to_next_attempt(request, answer);
    if (suspects_.met(request, alone)) end_poison(request, lost);
}

void ConductorActor::end_poison(RequestId request, const ConductorPlan::Stage& lost) {
    const std::size_t losses = suspects_.met_by(request);
    for (const StageId stage : suspects_.explained_by(request)) context_->excuse_loss(stage);
    for (auto& [stage, trials] : trials_) trials.explained(request);
    end(request, FinishReason::Interrupted,
        Error{Errc::PeerGone,
              fmt::format("{} is ended: {} was lost while it alone was running, {} losses in a row "
                          "without a committed token",
                          name_of(request), name_of(lost), losses)});
}

void ConductorActor::to_next_attempt(RequestId request, Answer& answer) {
    send_stop(request, answer.attempt);  // otherwise the stages would continue to work on it
    const Result<Attempt> next = log_.restart(request);
    PACE_CHECK(next.ok(), "a request that runs is in the log");
    answer.attempt = next.value();
    context_->cancel_before(request, answer.attempt);
    answer.phase = Phase::Waiting;
    for (auto& [stage, trials] : trials_) trials.void_attempt(request);
    watch_.ended(request);
    wanted_.forget(request);
}

void ConductorActor::watch_recovery(RequestId request, Answer& answer) {
    if (answer.timer != 0) return;
    answer.timer = ++timers_;
    wait_for_recovery(request, {.timer = answer.timer, .left = plan_.recovery_limit});
}

/// In short steps: a step that takes much longer than it should contains a pause; only the length of
/// the step counts.
void ConductorActor::wait_for_recovery(RequestId request, Wait wait) {
    const Micros step = std::min(wait.left, kRecoveryStep);
    const Micros begun = context_->now();
    context_->schedule(step, [this, request, wait, step, begun]() mutable {
        const auto found = answers_.find(request);
        if (found == answers_.end() || found->second.phase != Phase::Waiting ||
            found->second.timer != wait.timer) {
            return;
        }
        Micros waited = context_->now() - begun;
        const bool paused = waited > step + kRecoveryStep;
        if (paused && !planted(PlantedBug::PauseCountsAsWaiting)) waited = step;
        wait.left -= waited;
        // After a pause the stages have one more step to report. Only once, because every step is late where
        // a callback takes long.
        if (paused && wait.left < kRecoveryStep && !std::exchange(wait.is_last, true))
            wait.left = kRecoveryStep;
        if (wait.left.count() > 0) return wait_for_recovery(request, wait);
        end_unrecovered(request);
    });
}

void ConductorActor::end_unrecovered(RequestId request) {
    std::string missing;
    for (const ConductorPlan::Stage& candidate : plan_.begin_to) {
        if (!candidate.essential || !lost_.contains(candidate.id)) continue;
        missing += (missing.empty() ? "" : ", ") + name_of(candidate);
    }
    end(request, FinishReason::Interrupted,
        Error{Errc::PeerGone,
              fmt::format("{} waited {} ms for {}, which did not come back; try again later",
                          name_of(request), plan_.recovery_limit.count() / 1000, missing)});
}

// ---- Verdicts

void ConductorActor::handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
    const MessageLimits limits{
        .vocab_size = vocab_size_, .kv_slots = kv_slots_, .context = kv_slots_};
    const Result<msg::Verdict> verdict =
        read_verdict({from, context_->epoch_of(from), kind, bytes}, plan_.verifier, limits);
    if (!verdict) return context_->report_fault(from, verdict.error());
    follow(verdict.value());
}

/// Whether it fits the log of its request; a verdict of another attempt is not checked.
Status ConductorActor::check(const msg::Verdict& verdict, const Answer& answer) const {
    if (verdict.route.attempt != answer.attempt) return {};
    const RequestId request = verdict.route.request;
    const auto length = static_cast<Position>(log_.text(request).size());
    FinishRule rule = answer.order.request.finish_rule();
    rule.answer_begin = length - static_cast<Position>(log_.answer(request).size());
    return check_place(verdict, length, rule);
}

void ConductorActor::follow(const msg::Verdict& verdict) {
    const RequestId request = verdict.route.request;
    const auto found = answers_.find(request);
    if (found == answers_.end() || found->second.phase == Phase::Ended) return;  // it is over
    Answer& answer = found->second;
    if (const Status fits = check(verdict, answer); !fits) {
        return context_->report_fault(plan_.verifier, fits.error());
    }
    const Commit commit = log_.commit(verdict);
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
    AnswerFigures& figures = answer.figures;
    if (figures.generated_tokens == 0) figures.prefilled = figures.first_token = context_->now();
    figures.verdicts.add(verdict);
    const bool cleared = verdict.count > 0 && suspects_.cleared(request);
    note_verdict(request, answer);
    note_in_trials(verdict);
    // All committed tokens but the last, the new root, have been through the target.
    answer.held = static_cast<std::int32_t>(log_.text(request).size()) - 1;
    const std::uint64_t turn = answer.turn;
    hand_on(request, turn, verdict);
    if (const Answer* open = find(request, turn)) tell_wanting(request, *open);
    if (cleared) begin_waiting();
}

/// A callback may end this answer or any other, and close them.
void ConductorActor::hand_on(RequestId request, std::uint64_t turn, const msg::Verdict& verdict) {
    if (!planted(PlantedBug::CancelUnseen) && is_cancelled(request, turn)) return;
    const AnswerOrder::OnToken on_token = find(request, turn)->order.on_token;
    for (std::uint32_t i = 0; i < verdict.count; ++i) {
        Answer* answer = find(request, turn);
        if (answer == nullptr) return;
        ++answer->length;
        ++answer->figures.generated_tokens;
        answer->figures.last_token = context_->now();
        if (on_token(verdict.tokens[i]) == Go::On) continue;
        if (find(request, turn) != nullptr) cancel(request);
        return;
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
        const Status sent = stops_.send(*context_, to.id, stop);
        if (!sent) context_->report_fault(to.id, sent.error());
    }
}

void ConductorActor::on_room(StageId to) {
    stops_.flush(*context_, to);
}

void ConductorActor::end(RequestId request, FinishReason finish, const Status& status) {
    Answer& answer = answers_.at(request);
    PACE_CHECK(answer.phase != Phase::Ended, "an answer ends twice");
    if (answer.phase == Phase::Running) {
        if (!planted(PlantedBug::EndUntold)) send_stop(request, answer.attempt);
        // Its next turn, if there is one, has the next attempt.
        context_->cancel_before(request, Attempt{answer.attempt.value + 1});
    }
    answer.phase = Phase::Ended;
    // Cached tokens beyond those that were handed on do not belong to the answer.
    answer.held = std::min(answer.held, static_cast<std::int32_t>(answer.length));
    suspects_.forget(request);
    end_trials(request, status.ok() && finish != FinishReason::Interrupted);
    watch_.ended(request);
    wanted_.forget(request);
    answer.figures.finish = finish;
    const AnswerFigures figures = answer.figures;
    const auto on_end = std::exchange(answer.order.on_end, nullptr);
    answer.order.on_token = nullptr;
    answer.order.cancelled = nullptr;
    if (on_end) on_end(figures, status);  // `answer` may be gone now
    begin_waiting();
    tell_drafts();
    show_gauges();
}

// ---- Gauges and access

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
