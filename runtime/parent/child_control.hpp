// ChildControl: the control socket of a child: reads its messages, and sends those for it without
// waiting (control_outbox.hpp).
//
//   [open] -- closed by the child, not read, an invalid message --> on_silence, [silent]
//
// Once silent nothing is read or sent any more. Bounded per wake-up, so that a child that sends
// endlessly does not delay others.
// Owns socket and descriptor. Stays at its address while the io_context runs. One thread, the
// io_context's.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "ipc/wire/control_socket.hpp"
#include "runtime/parent/control_outbox.hpp"

namespace paceline {

class ChildControl {
public:
    using OnMessage = std::function<void(ControlSocket::Received)>;
    using OnSilence = std::function<void(const Error&)>;

    /// `watch`: a second descriptor of `socket`. `title`: of the child, for messages.
    ChildControl(boost::asio::io_context& io,
                 ControlSocket socket,
                 OwnedFd watch,
                 std::string title,
                 OnMessage on_message,
                 OnSilence on_silence);
    ChildControl(const ChildControl&) = delete;
    ChildControl& operator=(const ChildControl&) = delete;

    /// The first wake-up is requested.
    void watch();
    /// As NodeAgent::send().
    [[nodiscard]] Status send(const control::Message& message,
                              std::span<const int> files,
                              std::chrono::milliseconds limit,
                              Envelope envelope);
    /// Sends waiting messages, and reports a child that has read nothing for too long; `stopped`:
    /// it cannot read at the moment. Whether anything was sent.
    bool flush(bool stopped);
    /// The child has ended: reads what is left in the socket, and is silent without a report.
    void finish();

    [[nodiscard]] bool silent() const { return silent_; }
    [[nodiscard]] int fd() const { return socket_.fd(); }

private:
    void listen();
    [[nodiscard]] bool receive();
    void fall_silent(const Error& error);

    ControlSocket socket_;
    ControlOutbox outbox_;
    boost::asio::posix::stream_descriptor watch_;
    std::string title_;
    OnMessage on_message_;
    OnSilence on_silence_;
    bool silent_ = false;
};

}  // namespace paceline
