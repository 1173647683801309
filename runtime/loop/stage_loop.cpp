#include "runtime/loop/stage_loop.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "ipc/base/check.hpp"
#include "runtime/loop/actor_host.hpp"
#include "runtime/loop/edge_links.hpp"
#include "runtime/loop/loop_calls.hpp"
#include "runtime/loop/loop_control.hpp"
#include "runtime/loop/loop_environment.hpp"
#include "runtime/loop/loop_frames.hpp"
#include "runtime/loop/loop_telemetry.hpp"
#include "runtime/loop/stage_edges.hpp"

namespace paceline {
namespace {

StageLoopOptions bounded(StageLoopOptions options) {
    options.poll_limit = std::clamp(options.poll_limit, Micros{100}, Doorbell::kSleepMax);
    options.burst = std::max(options.burst, 1U);
    return options;
}

StageTelemetry& block_of(const Wiring& wiring) {
    PACE_CHECK(wiring.telemetry != nullptr, "a wiring without telemetry");
    return *wiring.telemetry;
}

}  // namespace

class StageLoop::Impl {
public:
    Impl(Wiring wiring, ControlPort& port, const StageLoopOptions& options)
        : wiring_{std::move(wiring)},
          options_{bounded(options)},
          telemetry_{block_of(wiring_), std::chrono::milliseconds{wiring_.hang_limit_ms},
                     options_.row_time},
          links_{options_.device, wiring_.bell, std::chrono::milliseconds{wiring_.link_limit_ms}},
          edges_{wiring_},
          environment_{host_, edges_, frames_, telemetry_, port, wiring_.board},
          control_{port,   wiring_.bell, wiring_.self, options_.poll_limit,
                   edges_, links_,       telemetry_,   host_},
          frames_{edges_, telemetry_, host_, control_, options_.burst} {}

    [[nodiscard]] Status run();
    bool iterate();
    bool run_job();
    void wait();

    LoopCalls calls_;  // what other threads post; all below is the loop's alone
    Wiring wiring_;
    StageLoopOptions options_;
    LoopTelemetry telemetry_;
    EdgeLinks links_;
    StageEdges edges_;  // after what links use: bell and links_
    LoopEnvironment environment_;
    ActorHost host_{environment_, ActorHost::Channels::OnDemand};
    LoopControl control_;
    LoopFrames frames_;
};

Status StageLoop::Impl::run() {
    telemetry_.begin_handling();
    control_.open_links();
    host_.start();
    edges_.ring_bells();
    while (!host_.ended()) {
        if (!iterate() && !host_.ended()) wait();
    }
    edges_.ring_bells();
    telemetry_.end_loop();
    return host_.outcome();
}

/// One round of everything that can be done without waiting; false if there was nothing.
bool StageLoop::Impl::iterate() {
    telemetry_.begin_handling();
    bool any = control_.is_due(steady_now()) && control_.poll();
    host_.end_on_error(links_.poll_if_due(edges_, steady_now()));
    any = calls_.run() || any;
    any = frames_.receive() || any;
    any = host_.deliver_round() || any;
    any = frames_.call_rooms() || any;
    any = host_.call_rooms() || any;
    any = host_.run_timers() || any;
    edges_.ring_bells();
    // Jobs come last, so that they see the newest messages.
    if (!host_.jobs().empty() && !host_.has_mail()) any = run_job() || any;
    // Handlers and jobs release slots; the producer is woken at the end of the iteration.
    edges_.ring_for_slots();
    any = control_.lose_faulty() || any;
    edges_.ring_bells();
    edges_.bury_retired(host_.jobs().finished());
    return any;
}

bool StageLoop::Impl::run_job() {
    const JobLabel label = *host_.jobs().first();
    const Micros start = telemetry_.begin_job(label);
    const bool ran = host_.run_job();
    telemetry_.end_job(label, start, host_.jobs().last_outcome());
    return ran;
}

void StageLoop::Impl::wait() {
    frames_.want_rooms();
    const auto ready = [this] {
        return links_.has_news() || frames_.can_go_on() || control_.has_news();
    };
    const Micros start = steady_now();
    Micros limit = options_.poll_limit;
    if (const auto timer = host_.next_timer()) limit = std::min(limit, *timer - start);
    if (const auto due = links_.due()) limit = std::min(limit, std::max(*due - start, Micros{0}));
    telemetry_.begin_wait(limit);
    bool slept = false;
    const bool woken =
        wiring_.bell.wait(ready, std::min(Micros{wiring_.spin_micros}, limit), limit, &slept);
    telemetry_.end_wait(start, slept);
    // Announced, or woken by nothing in the rings: a timer, a signal, the time limit.
    if (!woken || control_.has_news()) control_.poll();
}

StageLoop::StageLoop(Wiring wiring, ControlPort& port, const StageLoopOptions& options)
    : impl_{std::make_unique<Impl>(std::move(wiring), port, options)} {}
StageLoop::~StageLoop() = default;

void StageLoop::add(StageId id, Actor& actor) {
    impl_->host_.add(id, impl_->wiring_.epoch, actor);
}

Status StageLoop::connect(const EdgeSpec& edge) {
    return impl_->host_.connect(edge, impl_->options_.device);
}

Status StageLoop::run() {
    PACE_CHECK(impl_->host_.hosts(impl_->wiring_.self), "a loop without an actor of its own");
    return impl_->run();
}

void StageLoop::post(std::function<void()> call) {
    impl_->calls_.add(std::move(call));
    impl_->wiring_.bell.announce();
}

void StageLoop::run_posted() {
    (void)impl_->calls_.run();
}

StageTelemetry& StageLoop::telemetry() {
    return *impl_->wiring_.telemetry;
}

}  // namespace paceline
