#include "runtime/parent/local_node.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "ipc/base/check.hpp"
#include "runtime/parent/child.hpp"
#include "runtime/parent/spawn.hpp"

namespace paceline {
namespace {

namespace asio = boost::asio;
using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kReapLimit{5'000};
/// Limits a poll, so that a stage that sends faster than it is read does not block this process.
constexpr std::chrono::milliseconds kPollLimit{5};
constexpr rlim_t kDescriptorsWanted = 4'096;
/// How often the kernel is asked whether a child was stopped, or has ended without a process
/// descriptor.
constexpr std::chrono::milliseconds kChildInterval{10};

Error failed(const char* call) {
    return {Errc::System, std::string{call} + " failed: " + std::strerror(errno)};
}

/// Rings a doorbell whenever one of some descriptors has news, from a thread of its own: the
/// conductor's loop sleeps on the doorbell, not on descriptors. The thread touches nothing else.
class Waker {
public:
    [[nodiscard]] static Result<std::unique_ptr<Waker>> start(Doorbell bell) {
        std::unique_ptr<Waker> waker{new Waker{std::move(bell)}};
        waker->set_ = OwnedFd{::epoll_create1(EPOLL_CLOEXEC)};
        if (!waker->set_) return failed("epoll_create1");
        std::array<int, 2> ends{-1, -1};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed("pipe2");
        waker->end_ = OwnedFd{ends[0]};
        waker->end_it_ = OwnedFd{ends[1]};
        if (const Status watched = waker->watch(waker->end_.get()); !watched.ok()) {
            return watched.error();
        }
        waker->thread_ = std::thread{[w = waker.get()] { w->work(); }};
        return waker;
    }
    Waker(const Waker&) = delete;
    Waker& operator=(const Waker&) = delete;
    ~Waker() {
        if (!thread_.joinable()) return;  // it was never started
        if (::write(end_it_.get(), "", 1) == 1) {
            thread_.join();
        } else {
            thread_.detach();  // cannot happen: a pipe that was never written to has room
        }
    }

    /// A descriptor that is closed leaves the set by itself.
    [[nodiscard]] Status watch(int fd) const {
        epoll_event event{};
        // Edges only: a level would ring all the time until the loop has polled. Room in a socket
        // is news for what waits to be sent.
        event.events = EPOLLIN | EPOLLOUT | EPOLLET;
        event.data.fd = fd;
        if (::epoll_ctl(set_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return failed("epoll_ctl");
        return {};
    }

private:
    explicit Waker(Doorbell bell) : bell_{std::move(bell)} {}
    void work() {
        std::array<epoll_event, 16> events{};
        for (;;) {
            const int count =
                ::epoll_wait(set_.get(), events.data(), static_cast<int>(events.size()), -1);
            for (int i = 0; i < count; ++i) {
                if (events[static_cast<std::size_t>(i)].data.fd == end_.get()) return;
            }
            if (count > 0) bell_.announce();
            if (count < 0 && errno != EINTR) return;  // the loop still polls every few ms
        }
    }
    Doorbell bell_;
    OwnedFd set_;
    OwnedFd end_;     // a pipe: readable when the thread is to end
    OwnedFd end_it_;  // its other end
    std::thread thread_;
};

class LocalNode final : public NodeAgent {
public:
    LocalNode(NodeEvents events, bool catch_signals) : events_{std::move(events)}, signals_{io_} {
        if (!catch_signals) return;
        signals_.add(SIGINT);
        signals_.add(SIGTERM);
        watch_signals();
    }
    ~LocalNode() override;

    [[nodiscard]] Status start(Incarnation who,
                               const ProcessSpec& process,
                               const std::vector<std::string>& command) override;
    [[nodiscard]] Status send(Incarnation who,
                              const control::Message& message,
                              std::span<const int> files,
                              std::chrono::milliseconds limit,
                              Envelope envelope) override;
    void kill(Incarnation who) override {
        if (Child* child = find(who)) child->kill();
    }
    void poll() override;
    void wait(Deadline deadline) override;
    [[nodiscard]] Status wake_with(const MakeBell& bells) override;
    [[nodiscard]] std::string title(Incarnation who) const override {
        const Child* child = find(who);
        return child == nullptr ? "a stage that is gone" : child->title();
    }
    [[nodiscard]] std::string last_words(Incarnation who) const override {
        const Child* child = find(who);
        return child == nullptr ? "" : child->last_words();
    }
    [[nodiscard]] pid_t pid(Incarnation who) const override {
        const Child* child = find(who);
        return child == nullptr || child->gone() ? 0 : child->pid();
    }

private:
    [[nodiscard]] Child* find(Incarnation who) const {
        const auto found = children_.find(who);
        return found == children_.end() ? nullptr : found->second.get();
    }
    void watch_signals();
    void look_for_changes();
    void forget_the_gone();
    static void reap_helpers(const Child& child, SteadyClock::time_point deadline);

    NodeEvents events_;
    asio::io_context io_{1};
    // poll_one() answers 0 when nothing is queued; without this also when nothing is awaited. Then
    // what is queued about closed descriptors would be taken for news of those that are opened
    // next.
    asio::executor_work_guard<asio::io_context::executor_type> busy_{io_.get_executor()};
    asio::signal_set signals_;
    std::map<Incarnation, std::unique_ptr<Child>> children_;
    std::unique_ptr<Waker> waker_;
    SteadyClock::time_point looked_at_{};
};

Status LocalNode::start(Incarnation who,
                        const ProcessSpec& process,
                        const std::vector<std::string>& command) {
    PACE_CHECK(find(who) == nullptr, "an incarnation is started twice");
    Result<Spawned> spawned = spawn_stage(process, command);
    if (!spawned.ok()) return spawned.error();
    const int pin_error = spawned.value().pin_error;
    auto child =
        std::make_unique<Child>(io_, who, process.name, std::move(spawned).value(), events_);
    Child& started = *child;
    children_[who] = std::move(child);
    if (pin_error != 0 && events_.on_unpinned) events_.on_unpinned(who, pin_error);
    if (waker_ == nullptr) return {};
    // Without a waker its events are delayed by the loop's poll limit. Reporting a failed start
    // would be wrong: the stage runs.
    if (started.pidfd() >= 0) (void)waker_->watch(started.pidfd());
    (void)waker_->watch(started.control().fd());
    return {};
}

Status LocalNode::send(Incarnation who,
                       const control::Message& message,
                       std::span<const int> files,
                       std::chrono::milliseconds limit,
                       Envelope envelope) {
    Child* child = find(who);
    if (child == nullptr || child->gone()) return Error{Errc::PeerGone, title(who) + " is gone"};
    return child->control().send(message, files, limit, envelope);
}

void LocalNode::watch_signals() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
        if (error) return;
        if (events_.on_signal) events_.on_signal(signal);
        watch_signals();
    });
}

void LocalNode::look_for_changes() {
    const auto now = SteadyClock::now();
    if (now - looked_at_ < kChildInterval) return;
    looked_at_ = now;
    for (const auto& [who, child] : children_) child->look_for_changes();
}

/// Outside of their own handlers.
void LocalNode::forget_the_gone() {
    const auto deadline = SteadyClock::now() + std::chrono::milliseconds{100};
    for (auto child = children_.begin(); child != children_.end();) {
        if (!child->second->gone()) {
            ++child;
            continue;
        }
        reap_helpers(*child->second, deadline);
        child = children_.erase(child);
    }
}

void LocalNode::poll() {
    io_.restart();
    const auto end = SteadyClock::now() + kPollLimit;
    bool more = true;
    while (more && SteadyClock::now() < end) more = io_.poll_one() != 0;
    look_for_changes();
    for (const auto& [who, child] : children_) child->flush();
    // An event that was not handled yet may be about one of them.
    if (!more) forget_the_gone();
}

void LocalNode::wait(Deadline deadline) {
    io_.restart();
    // Not longer than until the next look for changes of the children.
    io_.run_one_until(std::min(deadline, SteadyClock::now() + kChildInterval));
    poll();
}

Status LocalNode::wake_with(const MakeBell& bells) {
    Result<Doorbell> bell = bells();
    if (!bell.ok()) return bell.error();
    Result<std::unique_ptr<Waker>> waker = Waker::start(std::move(bell).value());
    if (!waker.ok()) return waker.error();
    waker_ = std::move(waker).value();
    for (const auto& [who, child] : children_) {
        if (child->gone()) continue;
        const Status exits = child->pidfd() < 0 ? Status{} : waker_->watch(child->pidfd());
        if (!exits.ok()) return exits;
        if (const Status watched = waker_->watch(child->control().fd()); !watched.ok()) {
            return watched;
        }
    }
    return {};
}

LocalNode::~LocalNode() {
    waker_.reset();
    events_.on_exit = [](Incarnation, bool, const std::string&) {};
    events_.on_message = [](Incarnation, ControlSocket::Received) {};
    events_.on_silence = [](Incarnation, const Error&) {};
    events_.on_stopped = nullptr;
    for (const auto& [who, child] : children_) child->kill();
    // SIGKILL needs no cooperation, but a process in the kernel may take its time.
    const auto deadline = SteadyClock::now() + kReapLimit;
    const auto gone = [](const auto& entry) { return entry.second->gone(); };
    while (!std::all_of(children_.begin(), children_.end(), gone) &&
           SteadyClock::now() < deadline) {
        io_.restart();
        io_.run_one_until(std::min(deadline, SteadyClock::now() + kChildInterval));
        look_for_changes();
    }
    for (const auto& [who, child] : children_) reap_helpers(*child, deadline);
}

/// What a stage had forked is this process's child since the stage is gone (make_local_node()).
void LocalNode::reap_helpers(const Child& child, SteadyClock::time_point deadline) {
    while (SteadyClock::now() < deadline) {
        const pid_t reaped = ::waitpid(-child.pid(), nullptr, WNOHANG);
        if (reaped < 0 && errno == ECHILD) return;
        if (reaped == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
}

/// A parent of many stages holds several descriptors for each of their channels, more than the
/// soft limit of 1,024 that is usual. Without a higher one the next file says what is missing.
void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptorsWanted) return;
    limit.rlim_cur = std::min(limit.rlim_max, kDescriptorsWanted);
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Result<std::unique_ptr<NodeAgent>> make_local_node(NodeEvents events, bool catch_signals) {
    raise_descriptor_limit();
    // Processes that a dying stage leaves behind become children of this process, which reaps them.
    // Where that is denied, init does.
    (void)::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    try {
        return std::unique_ptr<NodeAgent>{
            std::make_unique<LocalNode>(std::move(events), catch_signals)};
    } catch (const boost::system::system_error& error) {
        return Error{Errc::System,
                     std::string{"cannot watch signals and children: "} + error.what()};
    }
}

}  // namespace paceline
