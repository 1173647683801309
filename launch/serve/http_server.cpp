#include "launch/serve/http_server.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fmt/core.h>
#include <random>
#include <set>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launch/serve/http_connection.hpp"
#include "launch/serve/http_listener.hpp"
#include "launch/serve/peer_connections.hpp"
#include "launch/serve/service_manager.hpp"

namespace paceline::serve {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kAcceptAgain{100};  // after descriptors ran out
constexpr std::chrono::milliseconds kDrainLook{20};
constexpr std::chrono::milliseconds kForgetLookMin{20};
constexpr std::chrono::milliseconds kForgetLookMax{1'000};
constexpr std::chrono::seconds kLastWrites{5};  // beyond the drain's limit
constexpr std::chrono::seconds kLastCloses{1};
constexpr std::size_t kConnectionsMax = 16'384;
constexpr std::size_t kPeerShare = 4;  // an address may have a quarter of all connections
constexpr int kNice = 5;

/// Half of the descriptors: each answer needs one or two of its own.
std::size_t connections_max() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
    return std::clamp<std::size_t>(static_cast<std::size_t>(limit.rlim_cur) / 2, 16,
                                   kConnectionsMax);
}

std::string random_id() {
    std::random_device device;
    return fmt::format("{:08x}{:08x}", device(), device());
}

asio::awaitable<void> pause_for(asio::io_context::executor_type executor,
                                std::chrono::milliseconds time) {
    asio::steady_timer timer{executor, time};
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace

void lower_thread_priority() {
    thread_local bool done = false;
    if (done) return;
    done = true;
    // Of a thread: Linux counts niceness so. A failure leaves the thread as it is.
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

class HttpServer::Impl {
public:
    explicit Impl(AccessRules access) : context_{std::move(access)}, signals_{io_} {
        context_.run_id = random_id();
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    ~Impl() { context_.pool.join(); }

    Status listen(const ListenPlace& place) {
        Result<std::unique_ptr<HttpListener>> listener = HttpListener::listen(io_, place);
        if (!listener) return listener.error();
        listener_ = std::move(listener).value();
        return {};
    }

    [[nodiscard]] std::string address() const { return listener_->address(); }
    void set(const ServerSettings& settings) {
        context_.limits.keep_alive = settings.keep_alive;
        context_.limits.header = settings.head_timeout;
        context_.limits.body = settings.body_timeout;
        context_.limits.recovery = settings.recovery_wait;
        context_.streams.set_keep(settings.resume);
        peer_connections_ = settings.peer_connections;
    }

    void waits_for(const std::string& what) {
        asio::post(io_, [this, what] { context_.waits_for = what; });
    }
    void ready(ServedModel& model, std::chrono::milliseconds drain_limit) {
        asio::post(io_, [this, &model, drain_limit] {
            drain_limit_ = drain_limit;
            context_.model = &model;
        });
    }
    void fail() { io_.stop(); }

    void run() {
        signals_.add(SIGTERM);
        signals_.add(SIGINT);
        signals_.add(SIGUSR1);
        asio::co_spawn(io_, accept(), asio::detached);
        asio::co_spawn(io_, wait_for_signal(), asio::detached);
        asio::co_spawn(io_, forget_streams(), asio::detached);
        io_.run();
    }

private:
    asio::awaitable<void> accept() {
        lower_thread_priority();
        while (true) {
            boost::system::error_code error;
            HttpSocket socket = co_await listener_->acceptor().async_accept(
                asio::redirect_error(asio::use_awaitable, error));
            if (error == asio::error::operation_aborted) co_return;
            if (error) {
                co_await pause_for(io_.get_executor(), kAcceptAgain);
                continue;
            }
            // Anew each time: the engine raises the limit of descriptors while it loads.
            const std::size_t most = connections_max();
            if (connections_.size() >= most) continue;  // closes it
            // One address cannot take all of them.
            if (peer_connections_ > 0)
                peers_.set_most(std::min(peer_connections_, most / kPeerShare));
            asio::co_spawn(io_, serve(std::move(socket)), asio::detached);
        }
    }

    asio::awaitable<void> serve(HttpSocket socket) {
        const std::string peer = peer_of(socket);
        HttpConnection connection{std::move(socket), context_};
        const Listed listed{*this, connection, peer};
        if (listed.admitted()) {
            co_await connection.run();
        } else {
            co_await connection.refuse();
        }
    }

    /// Streams whose clients do not come back.
    asio::awaitable<void> forget_streams() {
        const auto look = std::clamp<std::chrono::milliseconds>(context_.streams.keep() / 4,
                                                                kForgetLookMin, kForgetLookMax);
        while (true) {
            co_await pause_for(io_.get_executor(), look);
            context_.streams.sweep(KeptStreams::Clock::now());
        }
    }

    asio::awaitable<void> wait_for_signal() {
        boost::system::error_code error;
        const int signal =
            co_await signals_.async_wait(asio::redirect_error(asio::use_awaitable, error));
        if (error) co_return;
        signals_.clear(error);  // back to the default action, also for the next one
        if (context_.model == nullptr) {
            (void)std::raise(signal);
            co_return;
        }
        std::signal(SIGUSR1, SIG_IGN);  // a starter may send it again and again
        std::fprintf(stderr,
                     "paceline serve: draining, at most %.0f s; another signal ends it now\n",
                     std::chrono::duration<double>(drain_limit_).count());
        co_await drain();
    }

    asio::awaitable<void> drain() {
        using Clock = std::chrono::steady_clock;
        context_.draining = true;
        tell_stopping();
        Service& service = *context_.model->service;
        service.drain(drain_limit_);
        const auto until = Clock::now() + drain_limit_ + kLastWrites;
        const auto open = [&] {
            return context_.exchanges > 0 || !service.wait_idle(std::chrono::milliseconds{0});
        };
        while (open() && Clock::now() < until) co_await pause_for(io_.get_executor(), kDrainLook);
        listener_->close();
        const auto closed = Clock::now() + kLastCloses;
        while (!connections_.empty() && Clock::now() < closed) {
            for (HttpConnection* connection : connections_) connection->close();
            co_await pause_for(io_.get_executor(), kDrainLook);
        }
        io_.stop();
    }

    /// A connection among those that drain() closes, and among those of its peer.
    class Listed {
    public:
        Listed(Impl& server, HttpConnection& connection, const std::string& peer)
            : server_{server},
              connection_{connection},
              peer_{peer},
              admitted_{server.peers_.add(peer)} {
            server_.connections_.insert(&connection_);
            server_.context_.metrics.open_connections(1);
        }
        Listed(const Listed&) = delete;
        Listed& operator=(const Listed&) = delete;
        ~Listed() {
            server_.connections_.erase(&connection_);
            server_.context_.metrics.open_connections(-1);
            if (admitted_) server_.peers_.remove(peer_);
        }
        [[nodiscard]] bool admitted() const { return admitted_; }

    private:
        Impl& server_;
        HttpConnection& connection_;
        const std::string& peer_;
        bool admitted_;
    };

    // Before io_: it destroys the coroutines that wait, and they use these three.
    std::set<HttpConnection*> connections_;
    std::size_t peer_connections_ = 0;  // the setting; 0: no limit
    PeerConnections peers_{0};
    HttpContext context_;
    std::chrono::milliseconds drain_limit_{0};
    asio::io_context io_{1};
    std::unique_ptr<HttpListener> listener_;
    asio::signal_set signals_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::bind(const ListenPlace& place,
                                                     AccessRules access,
                                                     const ServerSettings& settings) {
    auto impl = std::make_unique<Impl>(std::move(access));
    impl->set(settings);
    if (Status listening = impl->listen(place); !listening) return listening.error();
    return std::unique_ptr<HttpServer>{new HttpServer{std::move(impl)}};
}

std::string HttpServer::address() const {
    return impl_->address();
}
void HttpServer::waits_for(const std::string& what) {
    impl_->waits_for(what);
}
void HttpServer::ready(ServedModel& model, std::chrono::milliseconds drain_limit) {
    impl_->ready(model, drain_limit);
}
void HttpServer::fail() {
    impl_->fail();
}
void HttpServer::run() {
    impl_->run();
}
}  // namespace paceline::serve
