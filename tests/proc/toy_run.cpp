#include "tests/proc/toy_run.hpp"

#include <utility>

#include <doctest/doctest.h>

namespace paceline::testing {

SupervisorOptions toy_supervision() {
    SupervisorOptions options;
    options.command = {PACELINE_TOY_STAGE};
    options.start_limit = std::chrono::seconds{20};
    options.shutdown_grace = std::chrono::seconds{5};
    options.restarts.restarts_max = 1'000'000;
    options.restarts.backoff = {Micros{0}};
    options.trace_events = 0;
    options.catch_signals = false;
    return options;
}

ToyRun::ToyRun(ToyRunOptions options) : options_{std::move(options)} {
    options_.supervision.on_news = [this](const std::string& sentence) {
        news_ += sentence + "\n";
    };
    if (!options_.load.more) {
        options_.load.more = [this] {
            return !saboteur_->done() || saboteur_->deaths() < options_.deaths_wanted;
        };
    }
}

ToyRun::~ToyRun() = default;

Status ToyRun::decode() {
    planted_bug.store(options_.bug, std::memory_order_relaxed);
    Result<std::unique_ptr<Supervisor>> made = Supervisor::create(options_.supervision);
    if (!made) return made.error();
    supervisor_ = std::move(made).value();
    if (Status started =
            supervisor_->start(toy_children(options_.plan, options_.faults, options_.bug));
        !started) {
        return started;
    }
    if (auto hellos = supervisor_->await_hellos(); !hellos) return hellos.error();
    Result<Wiring> wiring = supervisor_->wire(toy_edges(options_.plan), 0);
    if (!wiring) return wiring.error();
    if (options_.on_started) options_.on_started(supervisor_->pids());
    ConductorPlan plan = toy_conductor_plan(options_.plan);
    plan.poison_limit = options_.poison_limit;
    conductor_ = std::make_unique<ConductorActor>(plan, kFakeVocab, options_.plan.kv_slots);
    saboteur_ = std::make_unique<Saboteur>(*supervisor_, options_.plan, options_.sabotage);
    client_ = std::make_unique<ToyClient>(*conductor_, options_.load);
    client_->on_token = [this](Micros now) { saboteur_->on_token(now); };
    loop_ =
        std::make_unique<StageLoop>(std::move(wiring).value(), *supervisor_, StageLoopOptions{});
    loop_->add(kConductor, *conductor_);
    loop_->add(kToyClient, *client_);
    loop_->add(kSaboteur, *saboteur_);
    return loop_->run();
}

Status ToyRun::shutdown() {
    const Status ended = supervisor_->shutdown();
    loop_.reset();
    supervisor_.reset();
    return ended;
}

void check_decodes(ToyRun& run) {
    const Status ended = run.decode();
    const bool ok =
        ended.ok() && run.client().complaints().empty() && run.client().failures().empty();
    if (!ok) MESSAGE(run.news());
    CHECK_MESSAGE(ended.ok(), (ended.ok() ? "" : ended.error().what));
    if (!ended.ok()) return;
    for (const std::string& complaint : run.client().complaints()) FAIL_CHECK(complaint);
    for (const Error& failure : run.client().failures()) FAIL_CHECK(failure.what);
    CHECK(run.client().answered() > 0);
    const Status closed = run.shutdown();
    CHECK_MESSAGE(closed.ok(), (closed.ok() ? "" : closed.error().what));
}

}  // namespace paceline::testing
