// ConnectionCore: the state of one SecureConnection (secure_connection.hpp), and its handshake.
//
//   [Handshake] --the key is proved--> [Proved] --start()--> [Open] --close(), fault--> [Closing]
//        |                                |                    |                           |
//        +-- failed: done(error) ---------+---- peer gone -----+--------- flushed ---------+
//                                                              v                           v
//                                               [Ended] <--grace, end of file-- [Lingering]
//
// Closing sends what is queued; Lingering has told the peer that no more comes, and waits for its
// end of file, so that what was sent last is not lost by a reset. Handlers of the io_context hold a
// reference; the user's handle (make_handle()) calls abandon() when it is destroyed, after which no
// callback comes. Used by secure_connection.cpp, secure_listener.cpp and connecting.cpp alone.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "ipc/remote/frame_reader.hpp"
#include "ipc/remote/secure_connection.hpp"
#include "ipc/remote/tls_session.hpp"

namespace paceline::remote {

class ConnectionCore : public std::enable_shared_from_this<ConnectionCore> {
public:
    using Socket = boost::asio::ip::tcp::socket;
    using Millis = std::chrono::milliseconds;

    /// `socket` is connected.
    ConnectionCore(Socket socket, std::shared_ptr<TlsContext> tls, ConnectionOptions options);
    ConnectionCore(const ConnectionCore&) = delete;
    ConnectionCore& operator=(const ConnectionCore&) = delete;

    /// `done` once, unless abandon() is called before: the key is proved, or why not.
    void handshake(std::function<void(Status)> done);

    void start(ConnectionEvents events);
    [[nodiscard]] Sent send(const Frame& frame, Epoch node_epoch, Lane lane, bool urgent);
    void close(const std::string& reason, Millis grace);
    void abandon();
    [[nodiscard]] std::size_t queued_bytes() const { return queued_; }
    [[nodiscard]] int descriptor();
    [[nodiscard]] const std::string& peer() const { return peer_; }
    [[nodiscard]] const std::string& peer_host() const { return peer_host_; }

private:
    enum class State : std::uint8_t { Handshake, Proved, Open, Closing, Lingering, Ended };

    void shake();
    void shaken(const Status& status);
    void read_some();
    [[nodiscard]] bool hand_over(std::size_t count);
    [[nodiscard]] Status on_frame(const Frame& frame, Epoch node_epoch);
    void post_pump();
    void pump();
    void fill();
    [[nodiscard]] TlsSession::Step write_some();
    void watch_stall();
    void fault(const Error& error);
    void begin_close(Error error, Millis grace);
    void linger();
    void finish(const Error& error);
    void shut();
    [[nodiscard]] Error about_peer(Errc code, const std::string& what) const;
    [[nodiscard]] bool sends() const { return state_ == State::Open || state_ == State::Closing; }
    template <class Handler>
    void wait(Socket::wait_type what, Handler handler);

    Socket socket_;
    TlsSession tls_;
    ConnectionOptions options_;
    State state_ = State::Handshake;
    std::string peer_;
    std::string peer_host_;
    boost::asio::steady_timer limit_;  // of the handshake, the greeting, the closing
    boost::asio::steady_timer stall_;
    std::function<void(Status)> shaken_;
    std::shared_ptr<ConnectionEvents> events_;  // shared: a callback may end what it belongs to
    Error end_;                                 // why it is Closing

    FrameReader reader_;
    std::vector<std::byte> received_;

    std::array<std::deque<std::vector<std::byte>>, 2> lanes_;  // by Lane
    std::vector<std::byte> writing_;
    std::size_t written_ = 0;  // of writing_
    std::size_t queued_ = 0;   // bytes in the lanes, and of writing_ those not written
    std::chrono::steady_clock::time_point progress_;
    bool pump_posted_ = false;
    bool waits_to_write_ = false;
    bool wants_room_ = false;  // a send met Full
    bool watches_stall_ = false;
};

/// The user's end of a core that is Proved.
[[nodiscard]] ConnectionPtr make_handle(std::shared_ptr<ConnectionCore> core);

}  // namespace paceline::remote
