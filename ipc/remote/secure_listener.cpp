// Listening: accepts, lets each connection prove the key, and hands it over.
#include <algorithm>
#include <fcntl.h>
#include <fmt/core.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "ipc/remote/connection_core.hpp"
#include "ipc/remote/secure_connection.hpp"

namespace paceline::remote {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;

/// Connections that may be proving the key at once, in all and from one address. A further one ends
/// the oldest: those that say nothing keep no other waiting, and one address ends only its own.
constexpr std::size_t kProvingMax = 64;
constexpr std::size_t kProvingOfHostMax = 16;
constexpr std::chrono::milliseconds kAcceptPause{100};

class Listener final : public SecureListener {
public:
    /// What handlers of the io_context may still touch when the listener is gone.
    struct Shared : std::enable_shared_from_this<Shared> {
        Shared(asio::io_context& io, std::shared_ptr<TlsContext> context, ConnectionOptions with)
            : acceptor{io}, pause{io}, tls{std::move(context)}, options{std::move(with)} {}

        void accept();
        void prove(Tcp::socket socket);
        void make_room(const std::string& host);
        void refuse(const Error& error) const {
            if (events.on_refused) events.on_refused(error.what);
        }

        Tcp::acceptor acceptor;
        asio::steady_timer pause;
        std::shared_ptr<TlsContext> tls;
        ConnectionOptions options;
        ListenerEvents events;
        std::vector<std::shared_ptr<ConnectionCore>> proving;  // the oldest first
        bool accepting = false;
        bool over = false;
    };

    explicit Listener(std::shared_ptr<Shared> shared) : shared_{std::move(shared)} {
        boost::system::error_code problem;
        const Tcp::endpoint endpoint = shared_->acceptor.local_endpoint(problem);
        place_ = {endpoint.address().to_string(), endpoint.port()};
    }
    ~Listener() override {
        shared_->over = true;
        shared_->events = {};
        boost::system::error_code problem;
        shared_->acceptor.close(problem);
        shared_->pause.cancel();
        const auto proving = std::exchange(shared_->proving, {});
        for (const auto& core : proving) core->abandon();
    }
    NodePlace place() const override { return place_; }
    std::string interface_name() const override { return interface_of(place_.host); }

private:
    std::shared_ptr<Shared> shared_;
    NodePlace place_;
};

void Listener::Shared::accept() {
    if (over || accepting) return;
    accepting = true;
    acceptor.async_accept(
        [self = shared_from_this()](const boost::system::error_code& problem, Tcp::socket socket) {
            self->accepting = false;
            if (self->over) return;
            if (!problem) {
                self->prove(std::move(socket));
                return self->accept();
            }
            // Out of descriptors, mostly: without a pause this would spin.
            self->pause.expires_after(kAcceptPause);
            self->pause.async_wait([self](const boost::system::error_code&) { self->accept(); });
        });
}

/// For one more from `host`.
void Listener::Shared::make_room(const std::string& host) {
    const auto is_of_host = [&](const auto& core) { return core->peer_host() == host; };
    const auto of_host =
        static_cast<std::size_t>(std::count_if(proving.begin(), proving.end(), is_of_host));
    auto oldest = proving.end();
    if (of_host >= kProvingOfHostMax) {
        oldest = std::find_if(proving.begin(), proving.end(), is_of_host);
    } else if (proving.size() >= kProvingMax) {
        oldest = proving.begin();
    }
    if (oldest == proving.end()) return;
    const std::shared_ptr<ConnectionCore> core = std::move(*oldest);
    proving.erase(oldest);
    core->abandon();
    refuse(Error{Errc::PeerGone, fmt::format("connection with {}: too many connections prove no "
                                             "key, and this is the oldest",
                                             core->peer())});
}

void Listener::Shared::prove(Tcp::socket socket) {
    auto core = std::make_shared<ConnectionCore>(std::move(socket), tls, options);
    make_room(core->peer_host());
    proving.push_back(core);
    // The core holds this function: a reference to itself in it would keep it for ever.
    core->handshake([self = shared_from_this(), key = core.get()](const Status& status) {
        const auto found = std::find_if(self->proving.begin(), self->proving.end(),
                                        [key](const auto& each) { return each.get() == key; });
        if (found == self->proving.end()) return;
        const std::shared_ptr<ConnectionCore> proved = std::move(*found);
        self->proving.erase(found);
        if (!status.ok()) {
            self->refuse(status.error());
        } else if (self->events.on_connection) {
            self->events.on_connection(make_handle(proved));
        }
    });
}

Error cannot_listen(const NodePlace& place, const std::string& why) {
    return {Errc::BadArgument, fmt::format("cannot listen at {}: {}", place.text(), why)};
}

}  // namespace

Result<std::unique_ptr<SecureListener>> SecureListener::listen(asio::io_context& io,
                                                               const NodePlace& place,
                                                               const NodeKey& key,
                                                               const ConnectionOptions& options,
                                                               ListenerEvents events) {
    const Result<std::string> own = find_own_address(place.host);
    if (!own.ok()) return cannot_listen(place, own.error().what);
    Result<std::shared_ptr<TlsContext>> tls = TlsContext::make(key, TlsSide::Server);
    if (!tls.ok()) return tls.error();
    auto shared = std::make_shared<Listener::Shared>(io, std::move(tls).value(), options);
    boost::system::error_code problem;
    const asio::ip::address address = asio::ip::make_address(own.value(), problem);
    if (problem) return cannot_listen(place, problem.message());
    const Tcp::endpoint endpoint{address, place.port};
    Tcp::acceptor& acceptor = shared->acceptor;
    acceptor.open(endpoint.protocol(), problem);
    if (!problem) (void)::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!problem) acceptor.set_option(Tcp::acceptor::reuse_address(true), problem);
    if (!problem) acceptor.bind(endpoint, problem);
    if (!problem) acceptor.listen(asio::socket_base::max_listen_connections, problem);
    if (problem == asio::error::address_in_use) {
        return cannot_listen(place, "the port is taken: another agent or run uses it");
    }
    if (problem == boost::system::errc::address_not_available) {
        return cannot_listen(place, own.value() + " is not an address of this machine");
    }
    if (problem) return cannot_listen(place, problem.message());
    shared->events = std::move(events);
    shared->accept();
    return std::unique_ptr<SecureListener>{std::make_unique<Listener>(std::move(shared))};
}

}  // namespace paceline::remote
