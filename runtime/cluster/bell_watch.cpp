#include "runtime/cluster/bell_watch.hpp"

#include <signal.h>
#include <utility>

#include <boost/asio/post.hpp>

namespace paceline {

BellWatch::BellWatch(boost::asio::io_context& io,
                     Doorbell bell,
                     Micros limit,
                     std::function<void()> call)
    : io_{io}, bell_{std::move(bell)}, limit_{limit}, shared_{std::make_shared<Shared>()} {
    shared_->call = std::move(call);
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits the mask
    thread_ = std::thread{[this] { work(); }};
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BellWatch::~BellWatch() {
    shared_->over = true;
    ending_.store(true, std::memory_order_relaxed);
    bell_.ring();
    thread_.join();
}

void BellWatch::work() {
    while (!ending_.load(std::memory_order_relaxed)) {
        int asked = 0;
        const auto ready = [&] {
            // Before it is armed, after that, and after the sleep.
            if (++asked != 2 || shared_->posted.exchange(true)) return false;
            boost::asio::post(io_, [shared = shared_] {
                shared->posted.store(false);
                if (!shared->over) shared->call();
            });
            return false;
        };
        bell_.wait(ready, Micros{0}, limit_);
    }
}

}  // namespace paceline
