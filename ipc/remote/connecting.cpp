// Connecting: finds the place, connects, proves the key; again and again until the deadline.
#include <algorithm>
#include <fmt/core.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "ipc/remote/connection_core.hpp"
#include "ipc/remote/secure_connection.hpp"

namespace paceline::remote {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRetryPause{100};
constexpr std::chrono::milliseconds kAttemptLimit{3'000};  // a lost SYN is sent again by then

class Attempts final : public std::enable_shared_from_this<Attempts> {
public:
    Attempts(asio::io_context& io,
             NodePlace place,
             std::shared_ptr<TlsContext> tls,
             ConnectionOptions options,
             Clock::time_point deadline,
             std::function<void(Result<ConnectionPtr>)> done)
        : io_{io},
          place_{std::move(place)},
          tls_{std::move(tls)},
          options_{std::move(options)},
          deadline_{deadline},
          done_{std::move(done)},
          resolver_{io},
          timer_{io} {}

    void begin();
    void give_up();
    void fail_later(const Error& error);

private:
    void connect(const Tcp::resolver::results_type& endpoints);
    void prove();
    void try_again(const std::string& why);
    void finish(Result<ConnectionPtr> result);
    [[nodiscard]] Error failed(Errc code, const std::string& why) const {
        return {code, fmt::format("cannot connect to {}: {}", place_.text(), why)};
    }

    asio::io_context& io_;
    NodePlace place_;
    std::shared_ptr<TlsContext> tls_;
    ConnectionOptions options_;
    Clock::time_point deadline_;
    std::function<void(Result<ConnectionPtr>)> done_;
    Tcp::resolver resolver_;
    asio::steady_timer timer_;
    std::optional<Tcp::socket> socket_;
    std::shared_ptr<ConnectionCore> core_;
    std::string last_ = "the name has no address in time";  // why the last attempt failed
};

void Attempts::begin() {
    if (!done_) return;
    boost::system::error_code named;
    const auto address = asio::ip::make_address(place_.host, named);
    if (!named) {
        return connect(Tcp::resolver::results_type::create(Tcp::endpoint{address, place_.port},
                                                           place_.host, ""));
    }
    timer_.expires_at(deadline_);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& problem) {
        if (!problem) self->finish(self->failed(Errc::PeerGone, self->last_));
    });
    resolver_.async_resolve(place_.host, std::to_string(place_.port),
                            [self = shared_from_this()](const boost::system::error_code& problem,
                                                        const Tcp::resolver::results_type& found) {
                                if (!self->done_) return;
                                if (problem) return self->try_again(problem.message());
                                self->connect(found);
                            });
}

void Attempts::connect(const Tcp::resolver::results_type& endpoints) {
    socket_.emplace(io_);
    timer_.expires_at(std::min(deadline_, Clock::now() + kAttemptLimit));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& problem) {
        if (problem || !self->socket_) return;
        boost::system::error_code ignored;
        self->socket_->close(ignored);  // ends async_connect
    });
    asio::async_connect(*socket_, endpoints,
                        [self = shared_from_this()](const boost::system::error_code& problem,
                                                    const Tcp::endpoint&) {
                            if (!self->done_) return;
                            if (!problem) return self->prove();
                            const bool late = problem == asio::error::operation_aborted ||
                                              problem == asio::error::bad_descriptor;
                            self->try_again(late ? "no answer" : problem.message());
                        });
}

void Attempts::prove() {
    if (!socket_->is_open()) return try_again("no answer");
    timer_.cancel();
    core_ = std::make_shared<ConnectionCore>(std::move(*socket_), tls_, options_);
    socket_.reset();
    timer_.expires_at(deadline_);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& problem) {
        if (problem || !self->core_) return;
        std::exchange(self->core_, nullptr)->abandon();
        self->finish(self->failed(Errc::PeerGone, "it has not proved a key in time"));
    });
    core_->handshake([self = shared_from_this()](const Status& status) {
        const std::shared_ptr<ConnectionCore> core = std::exchange(self->core_, nullptr);
        if (!self->done_ || !core) return;
        if (status.ok()) return self->finish(make_handle(core));
        if (status.error().code == Errc::PeerGone) return self->try_again(status.error().what);
        self->finish(self->failed(status.error().code, status.error().what));
    });
}

void Attempts::try_again(const std::string& why) {
    socket_.reset();
    last_ = why;
    if (Clock::now() + kRetryPause >= deadline_) return finish(failed(Errc::PeerGone, why));
    timer_.expires_after(kRetryPause);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& problem) {
        if (!problem) self->begin();
    });
}

void Attempts::finish(Result<ConnectionPtr> result) {
    const auto done = std::exchange(done_, nullptr);
    give_up();
    if (done) done(std::move(result));
}

void Attempts::give_up() {
    done_ = nullptr;
    resolver_.cancel();
    timer_.cancel();
    socket_.reset();
    if (const auto core = std::exchange(core_, nullptr)) core->abandon();
}

void Attempts::fail_later(const Error& error) {
    timer_.expires_after(std::chrono::milliseconds{0});
    timer_.async_wait([self = shared_from_this(), error](const boost::system::error_code& problem) {
        if (!problem) self->finish(error);
    });
}

class ConnectingHandle final : public Connecting {
public:
    explicit ConnectingHandle(std::shared_ptr<Attempts> attempts)
        : attempts_{std::move(attempts)} {}
    ConnectingHandle(const ConnectingHandle&) = delete;
    ConnectingHandle& operator=(const ConnectingHandle&) = delete;
    ~ConnectingHandle() override { attempts_->give_up(); }

private:
    std::shared_ptr<Attempts> attempts_;
};

}  // namespace

std::unique_ptr<Connecting> connect_to(asio::io_context& io,
                                       const NodePlace& place,
                                       const NodeKey& key,
                                       const ConnectionOptions& options,
                                       Clock::time_point deadline,
                                       std::function<void(Result<ConnectionPtr>)> done) {
    Result<std::shared_ptr<TlsContext>> tls = TlsContext::make(key, TlsSide::Client);
    const std::shared_ptr<TlsContext> context = tls.ok() ? tls.value() : nullptr;
    auto attempts =
        std::make_shared<Attempts>(io, place, context, options, deadline, std::move(done));
    if (tls.ok()) {
        attempts->begin();
    } else {
        attempts->fail_later(tls.error());
    }
    return std::make_unique<ConnectingHandle>(attempts);
}

}  // namespace paceline::remote
