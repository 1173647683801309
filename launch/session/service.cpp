#include "launch/session/service.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace paceline {
namespace {

Error refused(const char* what) {
    return {Errc::Cancelled, what};
}

}  // namespace

Service::Service(std::unique_ptr<PipelineSession> session,
                 const ServiceOptions& options,
                 std::unique_ptr<GrammarHelpers> grammars)
    : places_{options.running + options.waiting},
      answers_{options.running, slot_, places_, figures_, clock_},
      slot_{std::move(session)},
      grammars_{std::move(grammars)} {
    watch_session();
}

void Service::watch_session() {
    PipelineSession& session = slot_.session();
    session.call([this] { publish(); });
    session.on_over([this](const Status& ended) { over(ended); });
    session.call_every(kTick, [this] { tick(); });
}

Service::~Service() = default;

// ---- Any thread

Submitted Service::submit(ServiceOrder order) {
    if (over_) return {SubmitOutcome::Failed, gone()};
    if (draining_)
        return {SubmitOutcome::Draining,
                refused("no further requests are accepted: shutting down")};
    if (Status valid = check(order.request); !valid) return {SubmitOutcome::Invalid, valid};
    const std::optional<AnswerId> id = places_.take();
    if (!id)
        return {SubmitOutcome::QueueFull,
                refused("too many requests wait already; try again later")};
    Submitted taken{.id = *id, .stream = std::make_shared<AnswerStream>()};
    const GrammarSpec grammar =
        order.request.compiled == nullptr ? order.request.grammar : GrammarSpec{};
    std::shared_ptr<const char> compiling;
    if (grammar.any()) compiling = std::make_shared<const char>();
    const GrammarHelpers::Waiter waiter = std::weak_ptr{compiling};
    const bool first = inbox_.add({.id = *id,
                                   .order = std::move(order),
                                   .stream = taken.stream,
                                   .compiling = std::move(compiling)});
    if (first) slot_.post([this] { take_inbox(); });
    if (!grammar.any()) return taken;
    grammars_->compile(
        grammar,
        [this, id = *id](const Result<CompiledGrammarPtr>& made) {
            slot_.post([this, id, made] {
                take_inbox();  // the order may be there still
                answers_.compiled(id, made);
            });
        },
        waiter);
    return taken;
}

/// All but whether a grammar can be compiled.
Status Service::check(const Request& request) const {
    if (!request.grammar.any() || request.compiled != nullptr) return slot_.check(request);
    if (!has_grammars() || grammars_ == nullptr) return no_grammars();
    Request without{request};
    without.grammar = {};
    without.compiled = std::make_shared<const CompiledGrammar>();
    return slot_.check(without);
}

void Service::compile(const GrammarSpec& grammar,
                      GrammarHelpers::Done done,
                      GrammarHelpers::Waiter waiter) {
    if (!has_grammars() || grammars_ == nullptr) return done(no_grammars());
    grammars_->compile(grammar, std::move(done), std::move(waiter));
}

void Service::cancel(AnswerId id) {
    std::optional<TakenOrder> order = inbox_.take_back(id);
    if (!order) return slot_.post([this, id] { answers_.stop(id, {}); });
    // The loop has not seen it, or there is none now: its place is free at once.
    constexpr FinishReason kFinish = FinishReason::Interrupted;
    order->stream->end({}, {.finish = kFinish}, {});
    places_.leave();
    if (order->order.counted) slot_.post([this] { figures_.count({.finish = kFinish}, {}); });
}

void Service::drain(std::chrono::milliseconds limit) {
    draining_ = true;
    slot_.post([this, limit] {
        clock_.end_in(limit);
        publish();
    });
}

bool Service::wait_idle(std::chrono::milliseconds limit) {
    return places_.wait_empty(limit);
}

ServiceSnapshot Service::snapshot() const {
    ServiceSnapshot copy = *shown_.shown();
    const std::size_t open = places_.taken();
    copy.waiting = open - std::min(open, copy.running);
    // Without a loop nothing is published until the other pipeline is there.
    if (draining_ && copy.state == ServiceState::Changing) copy.state = ServiceState::Draining;
    return copy;
}

// ---- The loop's thread

void Service::take_inbox() {
    for (TakenOrder& order : inbox_.take_all()) answers_.add(std::move(order));
    answers_.begin_next();
}

void Service::tick() {
    const std::vector<LostStage> lost = slot_.session().lost_stages();
    const bool whole = std::none_of(lost.begin(), lost.end(),
                                    [](const LostStage& stage) { return stage.essential; });
    // Loading counts for no deadline.
    clock_.tick(AnswerClock::Clock::now(), whole && !answers_.paused());
    answers_.stop_late();
    publish();
}

void Service::over(const Status& ended) {
    if (leaving_) return;
    const std::string why = ended.ok() ? "the pipeline has been shut down" : ended.error().what;
    answers_.close({Errc::PeerGone, why});
    publish();
    ServiceSnapshot last = *shown_.shown();
    last.state = ServiceState::Failed;
    last.why = why;
    shown_.show(std::move(last));
    over_ = true;  // submit() gives the reason that is shown
    take_inbox();
    answers_.end_all();
}

Error Service::gone() const {
    return {Errc::PeerGone, shown_.shown()->why};
}

void Service::publish() {
    if (over_) return;  // what over() has shown stays
    const auto now = ServiceFigures::Clock::now();
    PipelineSession& session = slot_.session();
    figures_.read_usage(session, now);
    ServiceSnapshot next =
        figures_.snapshot(session.lost_stages(), draining_, answers_.paused(), now);
    next.stages = session.stages();
    next.running = answers_.running();
    shown_.show(std::move(next));
}

}  // namespace paceline
