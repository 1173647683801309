#include "launch/session/service/open_answers.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace paceline {

// ---- before it runs ----

void OpenAnswers::add(TakenOrder taken) {
    const AnswerId id = taken.id;
    const int priority = taken.order.priority;
    const auto at = open_
                        .emplace(id, Open{.order = std::move(taken.order),
                                          .stream = std::move(taken.stream),
                                          .compiling = std::move(taken.compiling),
                                          .submitted = clock_.now()})
                        .first;
    if (closed_) return finish(at, {.finish = FinishReason::Interrupted}, *closed_);
    if (!at->second.compiling) line_.add(id.value, priority, clock_.now());
}

void OpenAnswers::compiled(AnswerId id, const Result<CompiledGrammarPtr>& made) {
    const auto at = open_.find(id);
    if (at == open_.end()) return;  // it was cancelled meanwhile
    if (!made) return finish(at, {.finish = FinishReason::Interrupted}, made.error());
    at->second.compiling.reset();
    at->second.order.request.compiled = made.value();
    line_.add(id.value, at->second.order.priority, at->second.submitted);
    begin_next();
}

void OpenAnswers::begin_next() {
    while (!paused_ && running_ < running_max_ && !closed_) {
        const std::optional<std::uint64_t> next = line_.take();
        if (!next) return;
        begin(AnswerId{*next}, open_.at(AnswerId{*next}));
    }
}

void OpenAnswers::begin(AnswerId id, Open& open) {
    AnswerOrder order;
    order.request = std::move(open.order.request);
    // The pipeline may have changed since the order was checked.
    std::int32_t& gamma = order.request.speculation.gamma;
    gamma = std::min(gamma, slot_.session().gamma_max());
    open.begun = open.last_token = clock_.now();
    open.prompt = static_cast<Position>(order.request.text.size());
    if (order.request.scores.any()) {
        order.on_scores = [this, id](Position position, const TokenScores& scores) {
            take_scores(id, position, scores);
        };
    }
    order.on_token = [this, id](TokenId token) { return take(id, token); };
    order.on_accepted = [this, id](std::span<const msg::Origin> origins) {
        if (const auto at = open_.find(id); at != open_.end())
            at->second.candidates.assign(origins.begin(), origins.end());
    };
    order.on_end = [this, id](const AnswerStats& stats, const Status& status) {
        ended(id, stats, status);
    };
    ++running_;
    const Result<RequestId> taken = slot_.session().submit(std::move(order));
    const auto at = open_.find(id);
    if (!taken) {
        --running_;
        return finish(at, {.finish = FinishReason::Interrupted}, taken.error());
    }
    if (at == open_.end()) return slot_.session().close(taken.value());  // it is over already
    at->second.request = taken.value();
}

// ---- while it runs ----

Go OpenAnswers::take(AnswerId id, TokenId token) {
    const auto at = open_.find(id);
    if (at == open_.end()) return Go::Stop;
    Open& open = at->second;
    open.last_token = clock_.now();
    if (open.order.prompt_only) return Go::On;
    if (open.order.counted) figures_.count_token();
    std::optional<AnswerText>& text = open.order.text;
    TokenOrigin origin = TokenOrigin::Target;
    if (!open.candidates.empty()) {
        origin = token_origin(open.candidates.front());
        open.candidates.pop_front();
    }
    open.stream->append(token, text ? text->push(token) : std::string{}, origin);
    return text && text->stopped() ? Go::Stop : Go::On;
}

void OpenAnswers::take_scores(AnswerId id, Position position, const TokenScores& scores) {
    const auto at = open_.find(id);
    if (at == open_.end() || (at->second.order.prompt_only && position >= at->second.prompt))
        return;
    if (position < at->second.prompt) {
        at->second.stream->add_prompt_scores(scores);
    } else {
        at->second.stream->add_scores(scores);
    }
}

/// Why the answer is to be ended; nullptr: it is in time.
const char* OpenAnswers::missed_deadline(const Open& open) const {
    const auto passed = [this](Micros since, const AnswerDeadlines::Limit& limit) {
        return limit && clock_.now() - since > *limit;
    };
    const AnswerDeadlines& limits = open.order.deadlines;
    const bool runs = open.request.has_value();
    const bool begun_text = runs && open.stream->size() > 0;
    if (clock_.is_past_end()) return "shutting down: the answer was not finished in time";
    if (!runs && passed(open.submitted, limits.queue))
        return "the request waited longer than its deadline";
    if (passed(open.submitted, limits.answer)) return "the answer took longer than its deadline";
    if (runs && !begun_text && passed(open.begun, limits.first_token))
        return "the first token took longer than its deadline";
    if (begun_text && passed(open.last_token, limits.gap))
        return "the next token took longer than its deadline";
    return nullptr;
}

void OpenAnswers::stop_late() {
    std::vector<std::pair<AnswerId, const char*>> late;  // stop() may end others
    for (const auto& [id, open] : open_) {
        if (const char* what = missed_deadline(open)) late.emplace_back(id, what);
    }
    for (const auto& [id, what] : late) stop(id, Error{Errc::Cancelled, what});
}

// ---- its end ----

void OpenAnswers::stop(AnswerId id, const Status& why) {
    const auto at = open_.find(id);
    if (at == open_.end()) return;
    if (!at->second.request) {
        line_.remove(id.value);
        return finish(at, {.finish = FinishReason::Interrupted}, why);
    }
    at->second.why = why;
    slot_.session().cancel(*at->second.request);
}

void OpenAnswers::ended(AnswerId id, const AnswerStats& stats, const Status& status) {
    const auto at = open_.find(id);
    if (at == open_.end()) return;
    --running_;
    const std::optional<RequestId> request = at->second.request;
    const Status why = at->second.why;
    finish(at, stats, status.ok() ? why : status);
    if (request) slot_.session().close(*request);
    begin_next();
}

/// Ends its stream; it is no longer open.
void OpenAnswers::finish(Place at, const AnswerStats& given, const Status& status) {
    Open open = std::move(at->second);
    open_.erase(at);
    AnswerStats stats = given;
    if (open.order.prompt_only) stats.generated_tokens = 0;
    std::string rest;
    if (std::optional<AnswerText>& text = open.order.text) {
        rest = text->finish();
        if (text->stopped())
            stats.finish =
                text->ended_by_rule() ? FinishReason::EndToken : FinishReason::StopString;
    }
    if (open.order.counted) figures_.count(stats, status);
    open.stream->end(rest, stats, status);
    places_.leave();
}

void OpenAnswers::close(const Error& why) {
    closed_ = why;
    running_ = 0;
}

void OpenAnswers::end_all() {
    while (!open_.empty()) {
        line_.remove(open_.begin()->first.value);
        finish(open_.begin(), {.finish = FinishReason::Interrupted}, *closed_);
    }
}

}  // namespace paceline
