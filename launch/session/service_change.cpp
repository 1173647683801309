// Service::change(): another pipeline between two answers; restart(): after one that has failed.
//
//     [runs] --pause()--> [paused] --let_go()--> [no loop] --attach()--> [runs]
//        \                                             |
//         +------ while it loads, if there is memory for both; else it loads here
//
//     [failed] --restart()--> [no loop] --attach()--> [runs]
//                                 |
//                                 +---- it cannot be started ----> [failed]
//
// While paused, orders are taken and wait. While there is no loop, what is posted is held, in its
// order, and the session that has ended still says which requests are valid.
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
    slot_.session().call([&] { idle = pause(); });
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

ChangeResult Service::restart(const PipelineChange::Open& open) {
    if (!over_ || draining_) return {ChangeOutcome::Busy, {}};
    slot_.hold();
    slot_.session().end();
    Result<std::unique_ptr<PipelineSession>> opened = open();
    if (opened && draining_) opened = shutting_down();
    if (!opened) {
        release();
        return {ChangeOutcome::Failed, opened.error()};
    }
    attach(std::move(opened).value());
    return {ChangeOutcome::Changed, {}};
}

bool Service::pause() {
    take_inbox();
    if (over_ || draining_ || !answers_.empty() || !slot_.session().lost_stages().empty())
        return false;
    answers_.pause(true);
    publish();
    return true;
}

/// The pipeline goes on, unless its loop has ended meanwhile.
ChangeResult Service::stay(const Error& why) {
    bool lives = false;
    slot_.session().call([&] {
        answers_.pause(false);
        lives = !over_;
        if (!lives) return;
        answers_.begin_next();
        publish();
    });
    if (!lives) return {ChangeOutcome::Failed, gone()};
    return {ChangeOutcome::Kept, why};
}

/// Ends the session, and with it the loop: nothing of this class runs afterwards. False: the loop
/// has ended before, with an error.
bool Service::let_go() {
    slot_.hold();
    bool lives = false;
    slot_.session().call([&] { lives = leaving_ = !over_; });
    if (!lives) {
        release();
        return false;
    }
    slot_.session().end();  // executes what was posted before
    return true;
}

/// There is no pipeline any more: open orders end with the reason.
void Service::lose(const Error& why) {
    slot_.session().call([&] {
        leaving_ = false;
        over(why);
    });
    release();
}

void Service::attach(std::unique_ptr<PipelineSession> fresh) {
    PipelineUsage ended = slot_.session().usage();
    slot_.replace(std::move(fresh));
    slot_.session().call([&] {
        figures_.begin_pipeline(std::move(ended));
        answers_.pause(false);
        answers_.reopen();
        leaving_ = false;
        over_ = false;
        clock_.tick(AnswerClock::Clock::now(), false);  // loading counts for no deadline
    });
    watch_session();
    release();
}

/// What was held goes to the loop, and orders that have waited begin.
void Service::release() {
    slot_.release([this] { take_inbox(); });
}

}  // namespace paceline
