// Wakeup: what a coroutine that answers a request waits for: news of its answers, the end of its
// client, or a time.
//
//     Wakeup wakeup{socket};
//     wakeup.watch(descriptor of each answer);
//     ... read everything ...;  co_await wakeup.wait_until(time);
//
// Watched descriptors are duplicated: their owner may close them first. A client has closed when
// its end of the stream is seen, also one that only ended its own half.
// Borrows the socket. All on the I/O thread. Handlers that come late own what they touch.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launch/serve/http_stream.hpp"

namespace paceline::serve {

class Wakeup {
public:
    using Clock = std::chrono::steady_clock;
    /// Between two looks where a descriptor could not be had.
    static constexpr std::chrono::milliseconds kPoll{10};

    explicit Wakeup(HttpSocket& socket);
    Wakeup(const Wakeup&) = delete;
    Wakeup& operator=(const Wakeup&) = delete;
    ~Wakeup();

    /// Also when it was readable before. -1: wait_until() returns every kPoll.
    void watch(int descriptor);
    /// Returns when a descriptor is readable, the client has closed, or at `time`; possibly
    /// earlier.
    boost::asio::awaitable<void> wait_until(Clock::time_point time);
    [[nodiscard]] bool client_closed();

private:
    struct Shared {
        explicit Shared(const boost::asio::any_io_executor& executor) : timer{executor} {}
        boost::asio::steady_timer timer;
        bool rung = false;
        bool watching = false;  // of the socket

        void ring() {
            rung = true;
            timer.cancel();
        }
    };
    struct Watched {
        explicit Watched(boost::asio::posix::stream_descriptor own) : descriptor{std::move(own)} {}
        boost::asio::posix::stream_descriptor descriptor;
        bool armed = false;
    };

    void arm();
    void watch_client();

    HttpSocket& socket_;
    std::shared_ptr<Shared> shared_;
    std::vector<std::shared_ptr<Watched>> watched_;
    bool polls_ = false;
    bool has_more_input_ = false;  // the client sent something behind its request
};

}  // namespace paceline::serve
