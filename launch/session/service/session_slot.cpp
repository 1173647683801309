#include "launch/session/service/session_slot.hpp"

namespace paceline {

void SessionSlot::post(std::function<void()> call) {
    const std::shared_lock lock{mutex_};
    if (!holding_) return session_->post(std::move(call));
    const std::lock_guard held{held_mutex_};
    held_.push_back(std::move(call));
}

Status SessionSlot::check(const Request& request) const {
    const std::shared_lock lock{mutex_};
    return session_->check(request);
}

void SessionSlot::hold() {
    const std::lock_guard lock{mutex_};
    holding_ = true;
}

void SessionSlot::replace(std::unique_ptr<PipelineSession> fresh) {
    const std::lock_guard lock{mutex_};
    session_.swap(fresh);  // the old one is destroyed without the lock
}

void SessionSlot::release(std::function<void()> last) {
    const std::lock_guard lock{mutex_};
    holding_ = false;
    const std::lock_guard held{held_mutex_};
    for (std::function<void()>& call : held_) session_->post(std::move(call));
    held_.clear();
    session_->post(std::move(last));
}

}  // namespace paceline
