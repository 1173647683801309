// The orders of ConductorActor's callers: submit, cancel, drain, close. What follows from them is in
// conductor_actor.cpp.
#include <algorithm>
#include <string>
#include <utility>

#include "actors/conductor/conductor_actor.hpp"
#include "actors/protocol/request_state.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

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
    if (draining_ && !planted(PlantedBug::DrainTakesOrders))
        return Error{Errc::BadArgument, "no further requests are accepted: shutting down"};
    Result<std::vector<TokenId>> text = text_of(order);
    if (!text) return text.error();
    order.request.text = std::move(text).value();
    if (order.request.context == 0) order.request.context = plan_.context;
    // Caches have whole pages only.
    const std::int32_t kv_slots = kv_slots_ / kKvPageSlots * kKvPageSlots;
    if (Status valid = validate(order.request, vocab_size_, kv_slots); !valid) return valid.error();

    const RequestId request = order.continues.value_or(RequestId{newest_.value + 1});
    const Result<Attempt> attempt = order.continues ? log_.extend(request, order.request.text)
                                                    : log_.open(request, order.request.text);
    if (!attempt) return attempt.error();
    newest_ = std::max(newest_, request);
    Answer& answer = answers_[request];
    // Stages forget old requests, and the cache layout depends on the context.
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
    end(request, FinishReason::Interrupted, {});
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
    for (const Phase phase : {Phase::Waiting, Phase::Running}) {
        for (const RequestId request : in_phase(phase)) {
            const auto found = answers_.find(request);
            if (found == answers_.end() || found->second.phase != phase) continue;
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

void ConductorActor::watch_for_cancel(RequestId request, std::uint64_t turn) {
    const Answer* answer = find(request, turn);
    if (answer == nullptr || !answer->order.cancelled) return;
    context_->schedule(plan_.cancel_poll, [this, request, turn] {
        if (find(request, turn) == nullptr || is_cancelled(request, turn)) return;
        watch_for_cancel(request, turn);
    });
}

/// Asks whether the client has gone, and ends the answer if so. Also true if it is over by now.
bool ConductorActor::is_cancelled(RequestId request, std::uint64_t turn) {
    const auto cancelled = find(request, turn)->order.cancelled;  // it may end this answer itself
    if (!cancelled || !cancelled()) return find(request, turn) == nullptr;
    if (find(request, turn) != nullptr) cancel(request);
    return true;
}

}  // namespace paceline
