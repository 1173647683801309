// SessionSlot: the pipeline session of a service, also while it is replaced by another one.
//
//     [runs] --hold()--> [held] --replace()--> [held] --release()--> [runs]
//
// While it is held there may be no loop: what is posted waits, and goes to the session's loop in
// its order on release(). check() always has a session to ask.
// Owns the session. Threads: post() and check() from any; session() from the loop's and from the
// one that holds; the rest from one that replaces sessions.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "launch/session/pipeline_session.hpp"

namespace paceline {

class SessionSlot {
public:
    explicit SessionSlot(std::unique_ptr<PipelineSession> session) : session_{std::move(session)} {}

    /// On the loop's thread; once there is one, while it is held.
    void post(std::function<void()> call);
    /// PipelineSession::check() of the present session, or of the one that has ended.
    [[nodiscard]] Status check(const Request& request) const;

    [[nodiscard]] PipelineSession& session() { return *session_; }
    [[nodiscard]] const PipelineSession& session() const { return *session_; }

    void hold();
    /// Destroys the present one. Precondition: it is held.
    void replace(std::unique_ptr<PipelineSession> fresh);
    /// What was held goes to the loop, and `last` after it.
    void release(std::function<void()> last);

private:
    mutable std::shared_mutex mutex_;  // of the pointer, for threads that are not the loop's, and
                                       // of `holding_`
    bool holding_ = false;
    std::mutex held_mutex_;
    std::vector<std::function<void()>> held_;
    std::unique_ptr<PipelineSession> session_;  // last: its loop's calls use the rest
};

}  // namespace paceline
