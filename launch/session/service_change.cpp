// Service::change(): another pipeline between two answers.
//
//     [runs] --pause()--> [paused] --let_go()--> [no loop] --attach()--> [runs]
//        \                                             |
//         +------ while it loads, if there is memory for both; else it loads here
//
// While paused, orders are taken and wait. While there is no loop, what is posted is held, in its
// order, and the session that has ended still says which requests are valid.
#include <chrono>
#include <mutex>
#include <utility>

#include "launch/session/service.hpp"

namespace paceline {
namespace {

Error shutting_down() {
    return {Errc::Cancelled, "shutting down: no other pipeline is started"};
}

}  // namespace

ChangeResult Service::change(const PipelineChange& wanted) {
    bool idle = false;
    session_->call([&] { idle = pause(); });
    if (!idle) return {ChangeOutcome::Busy, {}};
    std::unique_ptr<PipelineSession> fresh;
    if (wanted.beside) {
        Result<std::unique_ptr<PipelineSession>> opened = wanted.open();
        if (!opened) return stay(opened.error());
        if (draining_) return stay(shutting_down());  // this pipeline answers what waits
        fresh = std::move(opened).value();
    }
    if (!let_go()) return {ChangeOutcome::Failed, gone()};
    Status why;
    if (fresh == nullptr) {
        Result<std::unique_ptr<PipelineSession>> opened = wanted.open();
        if (!opened) {
            why = opened.error();
            opened = draining_ ? Result<std::unique_ptr<PipelineSession>>{shutting_down()}
                               : wanted.again();
        }
        if (!opened) {
            lose(opened.error());
            return {ChangeOutcome::Failed, opened.error()};
        }
        fresh = std::move(opened).value();
    }
    attach(std::move(fresh));
    return {why.ok() ? ChangeOutcome::Changed : ChangeOutcome::Kept, why};
}

void Service::post(std::function<void()> call) {
    const std::shared_lock lock{session_mutex_};
    if (!holding_) return session_->post(std::move(call));
    const std::lock_guard held{held_mutex_};
    held_.push_back(std::move(call));
}

bool Service::pause() {
    take_inbox();
    if (over_ || draining_ || !open_.empty() || !session_->lost_stages().empty()) return false;
    changing_ = true;
    publish();
    return true;
}

/// The pipeline goes on, unless its loop has ended meanwhile.
ChangeResult Service::stay(const Error& why) {
    bool lives = false;
    session_->call([&] {
        changing_ = false;
        lives = !over_;
        if (!lives) return;
        begin_next();
        publish();
    });
    if (!lives) return {ChangeOutcome::Failed, gone()};
    return {ChangeOutcome::Kept, why};
}

/// Ends the session, and with it the loop: nothing of this class runs afterwards. False: the loop
/// has ended before, with an error.
bool Service::let_go() {
    {
        const std::lock_guard lock{session_mutex_};
        holding_ = true;
    }
    bool lives = false;
    session_->call([&] { lives = leaving_ = !over_; });
    if (!lives) {
        release();
        return false;
    }
    session_->end();  // executes what was posted before
    return true;
}

/// There is no pipeline any more: open orders end with the reason.
void Service::lose(const Error& why) {
    session_->call([&] {
        leaving_ = false;
        over(why);
    });
    release();
}

void Service::attach(std::unique_ptr<PipelineSession> fresh) {
    PipelineUsage ended = session_->usage();
    ended.add_counts_of(earlier_);
    {
        const std::lock_guard lock{session_mutex_};
        session_.swap(fresh);
    }
    fresh.reset();
    session_->call([&] {
        earlier_ = std::move(ended);
        changing_ = leaving_ = false;
        recovering_since_.reset();
        usage_read_ = {};
        last_tick_ = std::chrono::steady_clock::now();  // loading counts for no deadline
    });
    watch_session();
    release();
}

/// What was held goes to the loop, and orders that have waited begin.
void Service::release() {
    const std::lock_guard lock{session_mutex_};
    holding_ = false;
    const std::lock_guard held{held_mutex_};
    for (std::function<void()>& call : held_) session_->post(std::move(call));
    held_.clear();
    session_->post([this] { take_inbox(); });
}

}  // namespace paceline
