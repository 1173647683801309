#include "ipc/remote/secure_connection.hpp"

#include <algorithm>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "ipc/base/check.hpp"
#include "ipc/remote/connection_core.hpp"

namespace paceline::remote {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using Step = TlsSession::Step;

constexpr std::size_t kReceiveBytes = 256 * 1024;  // that are read before frames are looked for
constexpr std::size_t kTurnBytes = 1U << 20;       // then other handlers get their turn
constexpr std::size_t kWriteBytes = 64 * 1024;     // small frames that go out together
constexpr int kUnsentBytes = 128 * 1024;           // that the kernel keeps; the rest is ours
constexpr std::chrono::milliseconds kRefusalGrace{500};
/// What was lost is sent again at least so often, so that a link that was cut for some seconds is
/// used again before a lease ends. TCP waits twice as long each time: 6 s after a cut of 4 s.
constexpr int kResendMillis = 1'000;
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44  // since Linux 6.15
#endif
constexpr std::size_t kBytesPerRoom = 2;  // on_room comes when half of the queue is free

void set_option(int descriptor, int level, int name, int value) {
    // Without it the connection is slower, not wrong.
    (void)::setsockopt(descriptor, level, name, &value, sizeof value);
}

}  // namespace

ConnectionCore::ConnectionCore(Socket socket,
                               std::shared_ptr<TlsContext> tls,
                               ConnectionOptions options)
    : socket_{std::move(socket)},
      tls_{std::move(tls), socket_.native_handle(), options.key_bytes_max},
      options_{std::move(options)},
      limit_{socket_.get_executor()},
      stall_{socket_.get_executor()},
      events_{std::make_shared<ConnectionEvents>()},
      reader_{options_.channel_by_hello ? FrameReader{options_.build}
                                        : FrameReader{options_.build, options_.channel}} {
    PACE_CHECK(options_.reserve_bytes < options_.queue_bytes, "no room for a normal frame");
    boost::system::error_code problem;
    socket_.non_blocking(true, problem);
    const auto endpoint = socket_.remote_endpoint(problem);
    peer_host_ = problem ? "a machine that is gone" : endpoint.address().to_string();
    peer_ = problem ? peer_host_ : NodePlace{peer_host_, endpoint.port()}.text();
    const int descriptor = socket_.native_handle();
    (void)::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
    set_option(descriptor, IPPROTO_TCP, TCP_RTO_MAX_MS, kResendMillis);
    set_option(descriptor, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);  // the same for older ones
    set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 0);
}

Error ConnectionCore::about_peer(Errc code, const std::string& what) const {
    return {code, fmt::format("connection with {}: {}", peer_, what)};
}

template <class Handler>
void ConnectionCore::wait(Socket::wait_type what, Handler handler) {
    socket_.async_wait(
        what, [self = shared_from_this(), handler](const boost::system::error_code& problem) {
            if (problem != asio::error::operation_aborted) (self.get()->*handler)();
        });
}

// ---- the handshake ----

void ConnectionCore::handshake(std::function<void(Status)> done) {
    PACE_CHECK(state_ == State::Handshake && !shaken_, "a second handshake");
    shaken_ = std::move(done);
    limit_.expires_after(options_.greet_limit);
    limit_.async_wait([self = shared_from_this()](const boost::system::error_code& problem) {
        if (problem || self->state_ != State::Handshake) return;
        self->shaken(
            self->about_peer(Errc::PeerGone, fmt::format("it has not proved a key within {} ms",
                                                         self->options_.greet_limit.count())));
    });
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->shake(); });
}

void ConnectionCore::shake() {
    if (state_ != State::Handshake) return;
    switch (tls_.handshake()) {
        case Step::Done:
            return shaken({});
        case Step::WantRead:
            return wait(Socket::wait_read, &ConnectionCore::shake);
        case Step::WantWrite:
            return wait(Socket::wait_write, &ConnectionCore::shake);
        case Step::Closed:
            return shaken(about_peer(Errc::PeerGone, "it closed before it had proved a key"));
        case Step::Failed:
            return shaken(about_peer(tls_.error().code, tls_.error().what));
    }
}

void ConnectionCore::shaken(const Status& status) {
    limit_.cancel();
    state_ = status.ok() ? State::Proved : State::Ended;
    if (!status.ok()) shut();
    const auto done = std::exchange(shaken_, nullptr);
    if (done) done(status);
}

// ---- receiving ----

void ConnectionCore::start(ConnectionEvents events) {
    PACE_CHECK(state_ == State::Proved || state_ == State::Ended, "a second start()");
    *events_ = std::move(events);
    if (state_ == State::Ended) return;
    state_ = State::Open;
    received_.resize(kReceiveBytes);
    limit_.expires_after(options_.greet_limit);
    limit_.async_wait([self = shared_from_this()](const boost::system::error_code& problem) {
        if (problem || self->state_ != State::Open || self->reader_.greeted()) return;
        self->fault(self->about_peer(
            Errc::PeerGone, fmt::format("it has the key and has not said hello within {} ms",
                                        self->options_.greet_limit.count())));
    });
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->read_some(); });
}

Status ConnectionCore::on_frame(const Frame& frame, Epoch node_epoch) {
    if (state_ != State::Open) return Error{Errc::Cancelled, "closed by a callback"};
    const auto* hello = std::get_if<Hello>(&frame);
    if (hello != nullptr && options_.channel_by_hello) options_.channel = hello->channel;
    const std::shared_ptr<ConnectionEvents> events = events_;
    const Status status = events->on_frame(frame, node_epoch);
    if (!status.ok()) return status;
    if (state_ != State::Open) return Error{Errc::Cancelled, "closed by a callback"};
    if (const auto* refused = std::get_if<Refused>(&frame)) {
        finish(about_peer(Errc::Protocol, "the other end refused it: " + refused->reason));
        return Error{Errc::Cancelled, "refused"};
    }
    return {};
}

/// Whether reading goes on.
bool ConnectionCore::hand_over(std::size_t count) {
    if (state_ == State::Lingering || state_ == State::Closing) return true;
    const bool knew = reader_.greeted();
    const Status taken =
        reader_.take(std::span{received_}.first(count),
                     [this](const Frame& frame, Epoch epoch) { return on_frame(frame, epoch); });
    if (state_ != State::Open) return state_ != State::Ended;
    if (!taken.ok()) {
        fault(about_peer(taken.error().code, taken.error().what));
        return state_ != State::Ended;
    }
    if (!knew && reader_.greeted()) limit_.cancel();
    return true;
}

void ConnectionCore::read_some() {
    std::size_t turn = 0;
    while (state_ != State::Ended) {
        std::size_t filled = 0;
        Step step = Step::Done;
        while (filled < received_.size() && step == Step::Done) {
            std::size_t count = 0;
            step = tls_.read(std::span{received_}.subspan(filled), count);
            filled += count;
        }
        if (filled > 0 && !hand_over(filled)) return;
        if (state_ == State::Ended) return;
        switch (step) {
            case Step::Done:
                break;
            case Step::WantRead:
                return wait(Socket::wait_read, &ConnectionCore::read_some);
            case Step::WantWrite:
                return wait(Socket::wait_write, &ConnectionCore::read_some);
            case Step::Closed:
                return finish(end_.what.empty() ? about_peer(Errc::PeerGone, "it was closed there")
                                                : end_);
            case Step::Failed:
                return finish(end_.what.empty() ? about_peer(tls_.error().code, tls_.error().what)
                                                : end_);
        }
        turn += filled;
        if (turn < kTurnBytes) continue;
        asio::post(socket_.get_executor(), [self = shared_from_this()] { self->read_some(); });
        return;
    }
}

// ---- sending ----

Sent ConnectionCore::send(const Frame& frame, Epoch node_epoch, Lane lane, bool urgent) {
    if (state_ != State::Open) return Sent::Ended;
    const std::size_t reserve = urgent ? 0 : options_.reserve_bytes;
    if (queued_ + reserve >= options_.queue_bytes) {
        wants_room_ = true;
        return Sent::Full;
    }
    std::vector<std::byte> bytes;
    append_frame(bytes, frame, node_epoch, options_.build, options_.channel);
    if (queued_ == 0) progress_ = Clock::now();
    queued_ += bytes.size();
    lanes_[static_cast<std::size_t>(lane)].push_back(std::move(bytes));
    post_pump();
    return Sent::Queued;
}

void ConnectionCore::post_pump() {
    if (pump_posted_ || waits_to_write_) return;
    pump_posted_ = true;
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
        self->pump_posted_ = false;
        self->pump();
    });
}

/// The next bytes to write: one long frame, or several short ones.
void ConnectionCore::fill() {
    writing_.clear();
    written_ = 0;
    for (auto& lane : lanes_) {
        while (!lane.empty()) {
            std::vector<std::byte>& next = lane.front();
            if (writing_.empty()) {
                writing_ = std::move(next);
            } else if (writing_.size() + next.size() <= kWriteBytes) {
                writing_.insert(writing_.end(), next.begin(), next.end());
            } else {
                return;
            }
            lane.pop_front();
        }
    }
}

TlsSession::Step ConnectionCore::write_some() {
    for (;;) {
        if (written_ == writing_.size()) fill();
        if (writing_.empty()) return Step::Done;
        std::size_t count = 0;
        const Step step = tls_.write(std::span{writing_}.subspan(written_), count);
        if (step != Step::Done) return step;
        written_ += count;
        queued_ -= count;
        progress_ = Clock::now();
    }
}

void ConnectionCore::pump() {
    if (!sends() || waits_to_write_) return;
    const Step step = write_some();
    if (step == Step::Closed || step == Step::Failed) {
        const Error error = step == Step::Closed ? about_peer(Errc::PeerGone, "it was closed there")
                                                 : about_peer(tls_.error().code, tls_.error().what);
        return finish(end_.what.empty() ? error : end_);
    }
    if (step != Step::Done) {
        waits_to_write_ = true;
        socket_.async_wait(step == Step::WantWrite ? Socket::wait_write : Socket::wait_read,
                           [self = shared_from_this()](const boost::system::error_code& problem) {
                               self->waits_to_write_ = false;
                               if (problem != asio::error::operation_aborted) self->pump();
                           });
        watch_stall();
    } else if (state_ == State::Closing) {
        return linger();
    }
    const std::size_t limit = options_.queue_bytes - options_.reserve_bytes;
    if (wants_room_ && queued_ <= limit / kBytesPerRoom && state_ == State::Open) {
        wants_room_ = false;
        const std::shared_ptr<ConnectionEvents> events = events_;
        if (events->on_room) events->on_room();
    }
}

void ConnectionCore::watch_stall() {
    if (watches_stall_ || options_.stall_limit.count() == 0) return;
    watches_stall_ = true;
    stall_.expires_at(progress_ + options_.stall_limit);
    stall_.async_wait([self = shared_from_this()](const boost::system::error_code& problem) {
        self->watches_stall_ = false;
        if (problem || !self->sends() || !self->waits_to_write_) return;
        if (Clock::now() - self->progress_ < self->options_.stall_limit) return self->watch_stall();
        self->finish(self->about_peer(
            Errc::PeerGone, fmt::format("it has read nothing for {} ms, {} bytes wait for it",
                                        self->options_.stall_limit.count(), self->queued_)));
    });
}

// ---- the end ----

/// Ends it because of the peer, who is told.
void ConnectionCore::fault(const Error& error) {
    std::vector<std::byte> bytes;
    Refused refused{error.what};
    refused.reason.resize(std::min<std::size_t>(refused.reason.size(), kTextBytesMax));
    append_frame(bytes, refused, Epoch{0}, options_.build, options_.channel);
    queued_ += bytes.size();
    lanes_[static_cast<std::size_t>(Lane::Control)].push_back(std::move(bytes));
    begin_close(error, kRefusalGrace);
}

void ConnectionCore::close(const std::string& reason, Millis grace) {
    if (state_ != State::Open && state_ != State::Proved) return;
    if (state_ == State::Proved) {  // reads, for the peer's end of file
        received_.resize(kReceiveBytes);
        asio::post(socket_.get_executor(), [self = shared_from_this()] { self->read_some(); });
    }
    begin_close(about_peer(Errc::Cancelled, reason), grace);
}

void ConnectionCore::begin_close(Error error, Millis grace) {
    state_ = State::Closing;
    end_ = std::move(error);
    limit_.expires_after(grace);
    limit_.async_wait([self = shared_from_this()](const boost::system::error_code& problem) {
        if (!problem) self->finish(self->end_);
    });
    post_pump();
}

void ConnectionCore::linger() {
    state_ = State::Lingering;
    boost::system::error_code problem;
    socket_.shutdown(Socket::shutdown_send, problem);
    if (problem) finish(end_);
}

void ConnectionCore::shut() {
    limit_.cancel();
    stall_.cancel();
    boost::system::error_code problem;
    socket_.close(problem);
    for (auto& lane : lanes_) lane.clear();
    queued_ = 0;
}

void ConnectionCore::finish(const Error& error) {
    if (state_ == State::Ended) return;
    state_ = State::Ended;
    shut();
    asio::post(socket_.get_executor(), [self = shared_from_this(), error] {
        const std::shared_ptr<ConnectionEvents> events = std::exchange(self->events_, nullptr);
        if (events && events->on_end) events->on_end(error);
    });
}

void ConnectionCore::abandon() {
    shaken_ = nullptr;
    state_ = State::Ended;
    shut();
    events_ = nullptr;  // a callback that runs now holds a reference
}

int ConnectionCore::descriptor() {
    return socket_.is_open() ? socket_.native_handle() : -1;
}

// ---- the handle ----

namespace {

class ConnectionHandle final : public SecureConnection {
public:
    explicit ConnectionHandle(std::shared_ptr<ConnectionCore> core) : core_{std::move(core)} {}
    ~ConnectionHandle() override { core_->abandon(); }
    void start(ConnectionEvents events) override { core_->start(std::move(events)); }
    Sent send(const Frame& frame, Epoch node_epoch, Lane lane, bool urgent) override {
        return core_->send(frame, node_epoch, lane, urgent);
    }
    void close(const std::string& reason, std::chrono::milliseconds grace) override {
        core_->close(reason, grace);
    }
    std::size_t queued_bytes() const override { return core_->queued_bytes(); }
    int descriptor() const override { return core_->descriptor(); }
    std::string peer() const override { return core_->peer(); }
    std::string peer_host() const override { return core_->peer_host(); }

private:
    std::shared_ptr<ConnectionCore> core_;
};

}  // namespace

ConnectionPtr make_handle(std::shared_ptr<ConnectionCore> core) {
    return std::make_shared<ConnectionHandle>(std::move(core));
}

}  // namespace paceline::remote
