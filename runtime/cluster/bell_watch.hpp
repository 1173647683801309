// BellWatch: lets a thread that waits for sockets also wait for a doorbell.
//
// A doorbell is a futex, which epoll does not know. A thread of its own sleeps on it and posts a
// call to the io_context whenever it was rung, and after `limit` at the latest. The call comes
// after the doorbell was armed again, so what was published before it is found by the call, and
// what comes later rings again: nothing is slept over. One call at a time waits in the queue.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include <boost/asio/io_context.hpp>

#include "ipc/transport/doorbell.hpp"

namespace paceline {

class BellWatch {
public:
    using Micros = Doorbell::Micros;

    /// `call` runs on the thread of `io`, and not after this object's destruction there.
    BellWatch(boost::asio::io_context& io, Doorbell bell, Micros limit, std::function<void()> call);
    BellWatch(const BellWatch&) = delete;
    BellWatch& operator=(const BellWatch&) = delete;
    ~BellWatch();

private:
    struct Shared {
        std::function<void()> call;
        std::atomic<bool> posted{false};
        bool over = false;  // on the thread of `io` alone
    };
    void work();

    boost::asio::io_context& io_;
    Doorbell bell_;
    Micros limit_;
    std::shared_ptr<Shared> shared_;
    std::atomic<bool> ending_{false};
    std::thread thread_;  // last
};

}  // namespace paceline
