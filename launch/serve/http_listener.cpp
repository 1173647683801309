#include "launch/serve/http_listener.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

namespace asio = boost::asio;

using Tcp = asio::ip::tcp;
using Unix = asio::local::stream_protocol;

constexpr mode_t kOthersMask = 0177;

/// Errors: another server holds it, or it cannot be made.
Result<OwnedFd> lock_beside(const std::string& path) {
    const std::string lock = path + ".lock";
    OwnedFd file{::open(lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (file.get() < 0)
        return Error{Errc::BadArgument,
                     "--unix " + path + ": " + lock + ": " + std::strerror(errno)};
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    return Error{Errc::BadArgument, "--unix " + path + ": another server listens there"};
}

/// Removes what a dead server left. Errors: something listens there, or it is no socket.
Status make_room(const std::string& path) {
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0) return {};
    if (!S_ISSOCK(found.st_mode))
        return Error{Errc::BadArgument, "--unix " + path + ": there is a file that is no socket"};
    asio::io_context io;
    Unix::socket probe{io};
    boost::system::error_code error;
    probe.connect(Unix::endpoint{path}, error);
    if (!error)
        return Error{Errc::BadArgument, "--unix " + path + ": another server listens there"};
    if (error != asio::error::connection_refused)
        return Error{Errc::BadArgument, "--unix " + path + ": " + error.message()};
    if (::unlink(path.c_str()) == 0) return {};
    return Error{Errc::BadArgument, "--unix " + path + ": " + std::strerror(errno)};
}

Tcp::endpoint tcp_endpoint(const HttpProtocol::endpoint& endpoint) {
    Tcp::endpoint tcp;
    tcp.resize(std::min(endpoint.size(), tcp.capacity()));
    std::memcpy(tcp.data(), endpoint.data(), tcp.size());
    return tcp;
}

}  // namespace

Result<std::unique_ptr<HttpListener>> HttpListener::listen(asio::io_context& io,
                                                           const ListenPlace& place) {
    std::unique_ptr<HttpListener> listener{new HttpListener{io}};
    Status listening = place.unix_path.empty() ? listener->listen_tcp(place)
                                               : listener->listen_unix(place.unix_path);
    if (!listening) return listening.error();
    return listener;
}

HttpListener::~HttpListener() {
    close();
}

Status HttpListener::listen_tcp(const ListenPlace& place) {
    const auto bad = [&](const boost::system::error_code& error) {
        return Error{Errc::BadArgument, fmt::format("cannot listen on {} port {}: {}", place.host,
                                                    place.port, error.message())};
    };
    boost::system::error_code error;
    Tcp::resolver resolver{acceptor_.get_executor()};
    const auto found =
        resolver.resolve(place.host, std::to_string(place.port), Tcp::resolver::passive, error);
    if (error || found.empty()) return bad(error);
    // "localhost" has addresses of both kinds; most clients try this one.
    const auto v4 = std::find_if(found.begin(), found.end(), [](const auto& each) {
        return each.endpoint().address().is_v4();
    });
    const Tcp::endpoint endpoint = (v4 == found.end() ? found.begin() : v4)->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(Acceptor::reuse_address{true}, error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(Acceptor::max_listen_connections, error);
    return error ? Status{bad(error)} : Status{};
}

Status HttpListener::listen_unix(const std::string& path) {
    if (path.size() >= sizeof(sockaddr_un::sun_path))
        return Error{Errc::BadArgument, fmt::format("--unix {}: a path has at most {} bytes", path,
                                                    sizeof(sockaddr_un::sun_path) - 1)};
    Result<OwnedFd> lock = lock_beside(path);
    if (!lock) return lock.error();
    lock_ = std::move(lock).value();
    if (Status room = make_room(path); !room) return room;
    const Unix::endpoint endpoint{path};
    boost::system::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    // Before bind(): the file never has other rights.
    const mode_t before = ::umask(kOthersMask);
    if (!error) acceptor_.bind(endpoint, error);
    ::umask(before);
    if (!error) acceptor_.listen(Acceptor::max_listen_connections, error);
    if (error)
        return Error{Errc::BadArgument, "--unix " + path + ": cannot listen: " + error.message()};
    struct stat made {};
    if (::lstat(path.c_str(), &made) == 0) {
        path_ = path;
        device_ = made.st_dev;
        inode_ = made.st_ino;
    }
    return {};
}

std::string HttpListener::address() const {
    if (!path_.empty()) return "unix:" + visible(path_, kLineShownBytesMax);
    const Tcp::endpoint own = tcp_endpoint(acceptor_.local_endpoint());
    std::string host = own.address().to_string();
    if (own.address().is_v6()) host = "[" + host + "]";
    return fmt::format("http://{}:{}", host, own.port());
}

/// The file first: until the socket is closed its inode is no other file's, and another server that
/// starts meanwhile does not take the file for one that a dead server left.
void HttpListener::close() {
    struct stat found {};
    const bool own = acceptor_.is_open() && !path_.empty() && ::lstat(path_.c_str(), &found) == 0 &&
                     found.st_dev == device_ && found.st_ino == inode_;
    if (own) ::unlink(path_.c_str());
    boost::system::error_code ignored;
    acceptor_.close(ignored);
}

std::string peer_of(const HttpSocket& socket) {
    boost::system::error_code error;
    const HttpProtocol::endpoint peer = socket.remote_endpoint(error);
    const int family = error ? AF_UNIX : peer.data()->sa_family;
    if (family != AF_INET && family != AF_INET6) return {};
    asio::ip::address address = tcp_endpoint(peer).address();
    if (address.is_v6() && address.to_v6().is_v4_mapped())
        address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
    if (address.is_loopback()) return {};
    if (address.is_v4()) return address.to_string();
    asio::ip::address_v6::bytes_type bytes = address.to_v6().to_bytes();
    std::fill(bytes.begin() + 8, bytes.end(), static_cast<unsigned char>(0));
    return asio::ip::address_v6{bytes}.to_string();
}

}  // namespace paceline::serve
