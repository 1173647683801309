#include "launch/serve/http_wakeup.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace paceline::serve {

namespace asio = boost::asio;

Wakeup::Wakeup(HttpSocket& socket)
    : socket_{socket}, shared_{std::make_shared<Shared>(socket.get_executor())} {}

Wakeup::~Wakeup() {
    boost::system::error_code ignored;
    if (shared_->watching) socket_.cancel(ignored);
    // A wait that is pending keeps its descriptor.
    for (const std::shared_ptr<Watched>& each : watched_) each->descriptor.close(ignored);
}

void Wakeup::watch(int descriptor) {
    const int own = descriptor < 0 ? -1 : ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        polls_ = true;
        return;
    }
    watched_.push_back(
        std::make_shared<Watched>(asio::posix::stream_descriptor{socket_.get_executor(), own}));
}

/// Asks for the next event of each descriptor that is not asked for yet.
void Wakeup::arm() {
    for (const std::shared_ptr<Watched>& each : watched_) {
        if (each->armed) continue;
        each->armed = true;
        each->descriptor.async_wait(
            asio::posix::stream_descriptor::wait_read,
            [shared = shared_, each](const boost::system::error_code& error) {
                each->armed = false;
                if (!error) shared->ring();
            });
    }
    watch_client();
}

void Wakeup::watch_client() {
    // What was sent too early stays readable: the wait would return at once, again and again.
    if (shared_->watching || has_more_input_) return;
    shared_->watching = true;
    socket_.async_wait(HttpSocket::wait_read,
                       [shared = shared_](const boost::system::error_code& error) {
                           shared->watching = false;
                           if (!error) shared->ring();
                       });
}

bool Wakeup::client_closed() {
    const int handle = socket_.native_handle();
    pollfd state{.fd = handle, .events = POLLIN | POLLRDHUP, .revents = 0};
    if (::poll(&state, 1, 0) <= 0) return false;
    if ((state.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0) return true;
    char byte = 0;
    const ssize_t got = ::recv(handle, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    has_more_input_ = got > 0;
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

asio::awaitable<void> Wakeup::wait_until(Clock::time_point time) {
    shared_->rung = false;
    arm();
    if (polls_) time = std::min(time, Clock::now() + kPoll);
    shared_->timer.expires_at(time);
    boost::system::error_code ignored;
    co_await shared_->timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace paceline::serve
