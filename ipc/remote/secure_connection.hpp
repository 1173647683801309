// SecureConnection: frames (node_frames.hpp) between two machines, over TCP and TLS 1.3.
//
//     listener  = SecureListener::listen(io, place, key, options, events)   agent, or conductor
//     connect_to(io, place, key, options, deadline, done)                   the other
//     connection->start(events); connection->send(hello); ... connection->close(reason)
//
// Both ends prove that they have the same NodeKey: TLS 1.3 with a pre-shared key and an ephemeral
// (EC)DHE exchange, which keeps earlier traffic secret if the key is lost later. No certificates,
// no tickets, no resumption, no early data, no older version. A connection that is not TLS, has
// another key, says nothing for `greet_limit`, or whose first frame is not a Hello of this build is
// closed, with one line for the log; nothing else happens. A peer that has the key is told the
// reason by a Refused. When 64 connections (16 of one address) are still to prove the key, a
// further one ends the oldest of them.
//
// Sends never wait. They are queued and bounded by bytes; normal frames meet Full while
// `reserve_bytes` are left, urgent ones when there is nothing left. Frames of one lane stay in
// order; those of Lane::Control pass queued frames of Lane::Data. The kernel is given little at a
// time, so that they also pass on a slow connection. A peer that takes nothing for `stall_limit`
// while something is queued is given up. TCP_NODELAY; no keepalive, because a lease watches.
//
// Threads: everything, callbacks included, on the one thread that runs the io_context. No callback
// comes from within a call of this interface. on_end comes once, as the last one, also after
// close(); nothing comes after destruction of the last reference that the caller holds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "ipc/base/result.hpp"
#include "ipc/remote/node_frames.hpp"
#include "ipc/remote/node_key.hpp"
#include "ipc/remote/node_place.hpp"

namespace paceline::remote {

struct ConnectionOptions {
    Channel channel = Channel::Main;
    bool channel_by_hello = false;  // of accepted connections: the peer's Hello says it
    Build build = this_build();
    std::size_t queue_bytes = 8U << 20;    // of frames that wait to be sent; one may go beyond
    std::size_t reserve_bytes = 1U << 20;  // of these, for urgent frames
    std::chrono::milliseconds greet_limit{5'000};   // TLS, and then the peer's Hello
    std::chrono::milliseconds stall_limit{15'000};  // 0: no limit
    /// Written with one key; TLS allows 2^24.5 records of AES-GCM, which are some 380 GB.
    std::uint64_t key_bytes_max = 1ULL << 36U;
};

struct ConnectionEvents {
    /// A frame and the node epoch under which it was sent; valid during the call. An error closes
    /// the connection with it.
    std::function<Status(const Frame& frame, Epoch node_epoch)> on_frame;
    /// The connection is over: Errc::PeerGone (closed or given up), Errc::Protocol (refused by
    /// either end), or Errc::Cancelled with the reason of close().
    std::function<void(const Error& error)> on_end;
    /// There is room again after a Full. May be empty.
    std::function<void()> on_room;
};

enum class Lane : std::uint8_t { Control, Data };
enum class Sent : std::uint8_t {
    Queued,
    Full,   // wait for on_room
    Ended,  // on_end has come or will come
};

class SecureConnection {
public:
    SecureConnection(const SecureConnection&) = delete;
    SecureConnection& operator=(const SecureConnection&) = delete;
    virtual ~SecureConnection() = default;  // closes at once; no callback comes

    /// Begins to read. Once, before anything else.
    virtual void start(ConnectionEvents events) = 0;
    [[nodiscard]] virtual Sent send(const Frame& frame,
                                    Epoch node_epoch,
                                    Lane lane,
                                    bool urgent) = 0;
    /// Sends what is queued, for at most `grace`, then closes; reads nothing more.
    virtual void close(const std::string& reason, std::chrono::milliseconds grace) = 0;

    [[nodiscard]] virtual std::size_t queued_bytes() const = 0;
    /// Of the socket: for a thread that waits until the io_context has something to do; -1 when it
    /// is closed. Nothing else may be done with it.
    [[nodiscard]] virtual int descriptor() const = 0;
    /// "10.0.0.2:51022".
    [[nodiscard]] virtual std::string peer() const = 0;
    [[nodiscard]] virtual std::string peer_host() const = 0;

protected:
    SecureConnection() = default;
};
using ConnectionPtr = std::shared_ptr<SecureConnection>;

struct ListenerEvents {
    /// One that has proved the key, and has not said Hello yet. Call its start() now.
    std::function<void(ConnectionPtr connection)> on_connection;
    /// One sentence about a connection that was refused, for the log. May be empty.
    std::function<void(const std::string& sentence)> on_refused;
};

class SecureListener {
public:
    /// On one address: `place.host` is an address of this machine, a name of one, or an interface
    /// with one. Port 0: any. Errc::BadArgument names place and reason (a port that is taken, a
    /// wildcard address, an interface without an address).
    [[nodiscard]] static Result<std::unique_ptr<SecureListener>> listen(
        boost::asio::io_context& io,
        const NodePlace& place,
        const NodeKey& key,
        const ConnectionOptions& options,
        ListenerEvents events);
    SecureListener(const SecureListener&) = delete;
    SecureListener& operator=(const SecureListener&) = delete;
    virtual ~SecureListener() = default;  // connections that were handed over stay

    /// With the numeric address and the port that it has.
    [[nodiscard]] virtual NodePlace place() const = 0;
    /// The interface that has this address, e.g. for NCCL_SOCKET_IFNAME; empty: none.
    [[nodiscard]] virtual std::string interface_name() const = 0;

protected:
    SecureListener() = default;
};

/// Destroying it gives up; `done` is then not called.
class Connecting {
public:
    virtual ~Connecting() = default;
};
/// Connects and proves the key. Tries again until the deadline while nothing listens there or the
/// name is not known yet. Errc::PeerGone names the place and the last reason; Errc::Protocol: no
/// TLS there or another key, which is not tried again. `done` is called once.
[[nodiscard]] std::unique_ptr<Connecting> connect_to(
    boost::asio::io_context& io,
    const NodePlace& place,
    const NodeKey& key,
    const ConnectionOptions& options,
    std::chrono::steady_clock::time_point deadline,
    std::function<void(Result<ConnectionPtr>)> done);

}  // namespace paceline::remote
