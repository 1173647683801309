// HttpListener: the TCP port or Unix socket that clients connect to.
//
// A Unix socket belongs to this user alone (mode 0600). One that is left of a server that died is
// replaced; where something listens, or the path is no socket, it stays and is an error. The file
// is removed with this object, unless it has become another one. PATH.lock beside it is locked from
// before the look at the path to the end, so of two servers that start together one has the path;
// the lock file stays.
// On the I/O thread.
#pragma once

#include <memory>
#include <string>
#include <sys/types.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/io_context.hpp>

#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "launch/serve/http_stream.hpp"
#include "launch/serve/server_settings.hpp"

namespace paceline::serve {

class HttpListener {
public:
    using Acceptor = boost::asio::basic_socket_acceptor<HttpProtocol>;

    /// Errors: BadArgument: the address is none, or cannot be bound.
    [[nodiscard]] static Result<std::unique_ptr<HttpListener>> listen(boost::asio::io_context& io,
                                                                      const ListenPlace& place);
    HttpListener(const HttpListener&) = delete;
    HttpListener& operator=(const HttpListener&) = delete;
    ~HttpListener();

    [[nodiscard]] Acceptor& acceptor() { return acceptor_; }
    /// "http://127.0.0.1:8080", "unix:/run/paceline.sock".
    [[nodiscard]] std::string address() const;
    /// No further clients.
    void close();

private:
    explicit HttpListener(boost::asio::io_context& io) : acceptor_{io} {}
    Status listen_tcp(const ListenPlace& place);
    Status listen_unix(const std::string& path);

    Acceptor acceptor_;
    std::string path_ = {};  // of the socket; empty: TCP
    OwnedFd lock_ = {};      // of its lock file
    dev_t device_ = 0;       // of its file, and the next
    ino_t inode_ = 0;
};

/// The address without the port, of an IPv6 client its network of 64 bits; empty: this machine.
[[nodiscard]] std::string peer_of(const HttpSocket& socket);

}  // namespace paceline::serve
