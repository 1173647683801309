#include "launch/session/open_orders.hpp"

namespace paceline {
namespace {

double seconds_of(std::chrono::steady_clock::duration time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

void OpenOrders::opened() {
    const std::lock_guard lock{mutex_};
    if (open_++ == 0) began_ = Clock::now();
}

void OpenOrders::closed() {
    {
        const std::lock_guard lock{mutex_};
        if (--open_ > 0) return;
        const auto now = Clock::now();
        seconds_ += seconds_of(now - began_);
        began_ = now;
    }
    changed_.notify_all();
}

void OpenOrders::end(const Status& ended) {
    {
        const std::lock_guard lock{mutex_};
        ended_ = ended;
    }
    changed_.notify_all();
}

std::optional<Status> OpenOrders::ended() const {
    const std::lock_guard lock{mutex_};
    return ended_;
}

Status OpenOrders::wait_closed() const {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return open_ == 0 || ended_.has_value(); });
    return ended_.value_or(Status{});
}

void OpenOrders::wait_ended() const {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return ended_.has_value(); });
}

double OpenOrders::seconds() const {
    const std::lock_guard lock{mutex_};
    return seconds_ + (open_ > 0 ? seconds_of(Clock::now() - began_) : 0.0);
}

void OpenOrders::restart_clock() {
    const std::lock_guard lock{mutex_};
    seconds_ = 0.0;
    began_ = Clock::now();
}

}  // namespace paceline
