#include "launch/session/service.hpp"

#include <algorithm>
#include <utility>

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

Error refused(const char* what) {
    return {Errc::Cancelled, what};
}

}  // namespace

Service::Service(std::unique_ptr<PipelineSession> session,
                 const ServiceOptions& options,
                 std::unique_ptr<GrammarHelpers> grammars)
    : options_{options},
      snapshot_{std::make_shared<const ServiceSnapshot>()},
      last_tick_{Clock::now()},
      session_{std::move(session)},
      grammars_{std::move(grammars)} {
    watch_session();
}

void Service::watch_session() {
    session_->call([this] { publish(); });
    session_->on_over([this](const Status& ended) { over(ended); });
    session_->call_every(kTick, [this] { tick(); });
}

Service::~Service() = default;

// ---- Any thread

Submitted Service::submit(ServiceOrder order) {
    if (over_) return {SubmitOutcome::Failed, gone()};
    if (draining_)
        return {SubmitOutcome::Draining,
                refused("no further requests are accepted: shutting down")};
    if (Status valid = check(order.request); !valid) return {SubmitOutcome::Invalid, valid};
    {
        const std::lock_guard lock{idle_mutex_};
        if (unfinished_ >= options_.running + options_.waiting)
            return {SubmitOutcome::QueueFull,
                    refused("too many requests wait already; try again later")};
        ++unfinished_;
    }
    Submitted taken{.id = {++newest_}, .stream = std::make_shared<AnswerStream>()};
    const GrammarSpec grammar =
        order.request.compiled == nullptr ? order.request.grammar : GrammarSpec{};
    std::shared_ptr<const char> compiling;
    if (grammar.any()) compiling = std::make_shared<const char>();
    const GrammarHelpers::Waiter waiter = std::weak_ptr{compiling};
    bool first = false;
    {
        const std::lock_guard lock{inbox_mutex_};
        first = inbox_.empty();
        inbox_.push_back({taken.id,
                          {.order = std::move(order),
                           .stream = taken.stream,
                           .compiling = std::move(compiling)}});
    }
    if (first) post([this] { take_inbox(); });
    if (!grammar.any()) return taken;
    grammars_->compile(
        grammar,
        [this, id = taken.id](const Result<CompiledGrammarPtr>& made) {
            post([this, id, made] { compiled(id, made); });
        },
        waiter);
    return taken;
}

/// All but whether a grammar can be compiled.
Status Service::check(const Request& request) const {
    if (!request.grammar.any() || request.compiled != nullptr) return check_with_session(request);
    if (!has_grammars() || grammars_ == nullptr) return no_grammars();
    Request without{request};
    without.grammar = {};
    without.compiled = std::make_shared<const CompiledGrammar>();
    return check_with_session(without);
}

Status Service::check_with_session(const Request& request) const {
    const std::shared_lock lock{session_mutex_};
    return session_->check(request);
}

void Service::compile(const GrammarSpec& grammar,
                      GrammarHelpers::Done done,
                      GrammarHelpers::Waiter waiter) {
    if (!has_grammars() || grammars_ == nullptr) return done(no_grammars());
    grammars_->compile(grammar, std::move(done), std::move(waiter));
}

void Service::cancel(AnswerId id) {
    post([this, id] { stop(id, {}); });
}

void Service::drain(std::chrono::milliseconds limit) {
    draining_ = true;
    post([this, limit] {
        drain_until_ = whole_time_ + limit;
        publish();
    });
}

bool Service::wait_idle(std::chrono::milliseconds limit) {
    std::unique_lock lock{idle_mutex_};
    return idle_.wait_for(lock, limit, [this] { return unfinished_ == 0; });
}

ServiceSnapshot Service::snapshot() const {
    ServiceSnapshot copy = *shown();
    const std::lock_guard lock{idle_mutex_};
    copy.waiting = unfinished_ - std::min(unfinished_, copy.running);
    // Without a loop nothing is published until the other pipeline is there.
    if (draining_ && copy.state == ServiceState::Changing) copy.state = ServiceState::Draining;
    return copy;
}

// ---- The loop's thread

void Service::take_inbox() {
    std::vector<Ordered> taken;
    {
        const std::lock_guard lock{inbox_mutex_};
        taken.swap(inbox_);
    }
    for (Ordered& each : taken) {
        each.open.submitted = whole_time_;
        const int priority = each.open.order.priority;
        const auto at = open_.emplace(each.id, std::move(each.open)).first;
        if (over_) {
            finish(at, {.finish = FinishReason::Interrupted}, gone());
            continue;
        }
        if (!at->second.compiling) line_.add(each.id.value, priority, whole_time_);
    }
    begin_next();
}

/// The grammar of an order is there, or is refused.
void Service::compiled(AnswerId id, const Result<CompiledGrammarPtr>& made) {
    take_inbox();  // the order may be there still
    const auto at = open_.find(id);
    if (at == open_.end()) return;  // it was cancelled meanwhile
    if (!made) return finish(at, {.finish = FinishReason::Interrupted}, made.error());
    at->second.compiling.reset();
    at->second.order.request.compiled = made.value();
    line_.add(id.value, at->second.order.priority, at->second.submitted);
    begin_next();
}

void Service::begin_next() {
    while (!changing_ && running_ < options_.running && !over_) {
        const std::optional<std::uint64_t> next = line_.take();
        if (!next) return;
        begin(AnswerId{*next}, open_.at(AnswerId{*next}));
    }
}

void Service::begin(AnswerId id, Open& open) {
    AnswerOrder order;
    order.request = std::move(open.order.request);
    // The pipeline may have changed since the order was checked.
    std::int32_t& gamma = order.request.speculation.gamma;
    gamma = std::min(gamma, session_->gamma_max());
    open.begun = open.last_token = whole_time_;
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
    const Result<RequestId> taken = session_->submit(std::move(order));
    const auto at = open_.find(id);
    if (!taken) {
        --running_;
        return finish(at, {.finish = FinishReason::Interrupted}, taken.error());
    }
    if (at == open_.end()) return session_->close(taken.value());  // it is over already
    at->second.request = taken.value();
}

Go Service::take(AnswerId id, TokenId token) {
    const auto at = open_.find(id);
    if (at == open_.end()) return Go::Stop;
    Open& open = at->second;
    open.last_token = whole_time_;
    if (open.order.prompt_only) return Go::On;
    if (open.order.counted) ++totals_.tokens;
    std::optional<AnswerText>& text = open.order.text;
    TokenOrigin origin = TokenOrigin::Target;
    if (!open.candidates.empty()) {
        origin = token_origin(open.candidates.front());
        open.candidates.pop_front();
    }
    open.stream->append(token, text ? text->push(token) : std::string{}, origin);
    return text && text->stopped() ? Go::Stop : Go::On;
}

void Service::take_scores(AnswerId id, Position position, const TokenScores& scores) {
    const auto at = open_.find(id);
    if (at == open_.end() || (at->second.order.prompt_only && position >= at->second.prompt))
        return;
    if (position < at->second.prompt) {
        at->second.stream->add_prompt_scores(scores);
    } else {
        at->second.stream->add_scores(scores);
    }
}

void Service::ended(AnswerId id, const AnswerStats& stats, const Status& status) {
    const auto at = open_.find(id);
    if (at == open_.end()) return;
    --running_;
    const std::optional<RequestId> request = at->second.request;
    const Status why = at->second.why;
    finish(at, stats, status.ok() ? why : status);
    if (request) session_->close(*request);
    begin_next();
}

void Service::count(const AnswerStats& stats, const Status& status) {
    const bool cancelled = stats.finish == FinishReason::Interrupted;
    ++(!status.ok() ? totals_.failed : cancelled ? totals_.cancelled : totals_.answers);
    totals_.prompt_tokens += static_cast<std::uint64_t>(stats.prompt_tokens);
    totals_.cached_tokens += static_cast<std::uint64_t>(stats.cached_tokens);
    totals_.verdicts.add(stats.verdicts);
    totals_.replays += stats.replays;
    totals_.preemptions += stats.preemptions;
}

/// Ends its stream; it is no longer open.
void Service::finish(std::map<AnswerId, Open>::iterator at,
                     const AnswerStats& given,
                     const Status& status) {
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
    if (open.order.counted) count(stats, status);
    open.stream->end(rest, stats, status);
    {
        const std::lock_guard lock{idle_mutex_};
        --unfinished_;
    }
    idle_.notify_all();
}

/// Ends an answer; with `why` as its error if that is one.
void Service::stop(AnswerId id, const Status& why) {
    const auto at = open_.find(id);
    if (at == open_.end()) return;
    if (!at->second.request) {
        line_.remove(id.value);
        return finish(at, {.finish = FinishReason::Interrupted}, why);
    }
    at->second.why = why;
    session_->cancel(*at->second.request);
}

void Service::tick() {
    const auto now = Clock::now();
    const auto passed = std::chrono::duration_cast<Micros>(now - std::exchange(last_tick_, now));
    const std::vector<LostStage> lost = session_->lost_stages();
    const bool whole = std::none_of(lost.begin(), lost.end(),
                                    [](const LostStage& stage) { return stage.essential; });
    if (whole && !changing_) whole_time_ += passed;  // loading counts for no deadline
    check_deadlines();
    publish();
}

void Service::check_deadlines() {
    struct Late {
        AnswerId id;
        const char* what;
    };
    std::vector<Late> late;
    const auto passed = [this](Micros since, const AnswerDeadlines::Limit& limit) {
        return limit && whole_time_ - since > *limit;
    };
    const bool drained = drain_until_ && whole_time_ > *drain_until_;
    for (const auto& [id, open] : open_) {
        const AnswerDeadlines& limits = open.order.deadlines;
        const bool runs = open.request.has_value();
        const bool begun_text = runs && open.stream->size() > 0;
        if (drained) {
            late.push_back({id, "shutting down: the answer was not finished in time"});
        } else if (!runs && passed(open.submitted, limits.queue)) {
            late.push_back({id, "the request waited longer than its deadline"});
        } else if (passed(open.submitted, limits.answer)) {
            late.push_back({id, "the answer took longer than its deadline"});
        } else if (runs && !begun_text && passed(open.begun, limits.first_token)) {
            late.push_back({id, "the first token took longer than its deadline"});
        } else if (begun_text && passed(open.last_token, limits.gap)) {
            late.push_back({id, "the next token took longer than its deadline"});
        }
    }
    for (const Late& each : late) stop(each.id, refused(each.what));
}

void Service::over(const Status& ended) {
    if (leaving_) return;
    running_ = 0;
    publish();
    ServiceSnapshot last = *shown();
    last.state = ServiceState::Failed;
    last.why = ended.ok() ? "the pipeline has been shut down" : ended.error().what;
    show(std::move(last));
    over_ = true;  // submit() gives the reason that is shown
    take_inbox();
    while (!open_.empty()) {
        line_.remove(open_.begin()->first.value);
        finish(open_.begin(), {.finish = FinishReason::Interrupted}, gone());
    }
}

Error Service::gone() const {
    return {Errc::PeerGone, shown()->why};
}

void Service::publish() {
    if (over_) return;  // what over() has shown stays
    if (const auto now = Clock::now(); now - usage_read_ >= kUsagePeriod) {
        usage_read_ = now;
        totals_.usage = session_->usage();
        totals_.usage.add_counts_of(earlier_);
    }
    ServiceSnapshot next = totals_;
    const std::vector<LostStage> lost = session_->lost_stages();
    bool essential = false;
    for (const LostStage& stage : lost) {
        next.why += (next.why.empty() ? "" : ", ") + stage.name;
        essential = essential || stage.essential;
    }
    next.state = draining_       ? ServiceState::Draining
                 : essential     ? ServiceState::Recovering
                 : changing_     ? ServiceState::Changing
                 : !lost.empty() ? ServiceState::Degraded
                                 : ServiceState::Ok;
    if (!essential) {
        recovering_since_.reset();
    } else if (!recovering_since_) {
        recovering_since_ = Clock::now();
    }
    next.recovering_since = recovering_since_.value_or(Clock::time_point{});
    next.stages = session_->stages();
    next.running = running_;
    next.heartbeat = Clock::now();
    show(std::move(next));
}

void Service::show(ServiceSnapshot next) {
    auto made = std::make_shared<const ServiceSnapshot>(std::move(next));
    const std::lock_guard lock{snapshot_mutex_};
    snapshot_.swap(made);  // the old one is freed without the lock
}

std::shared_ptr<const ServiceSnapshot> Service::shown() const {
    const std::lock_guard lock{snapshot_mutex_};
    return snapshot_;
}

}  // namespace paceline
