#include "runtime/parent/child_control.hpp"

#include <optional>
#include <utility>

#include <boost/asio/post.hpp>

namespace paceline {
namespace {

constexpr int kMessagesPerPoll = 256;
constexpr int kLastPolls = 64;  // of a child that has ended: more than a socket holds

}  // namespace

ChildControl::ChildControl(boost::asio::io_context& io,
                           ControlSocket socket,
                           OwnedFd watch,
                           std::string title,
                           OnMessage on_message,
                           OnSilence on_silence)
    : socket_{std::move(socket)},
      watch_{io, watch.release()},
      title_{std::move(title)},
      on_message_{std::move(on_message)},
      on_silence_{std::move(on_silence)} {}

void ChildControl::watch() {
    watch_.async_wait(watch_.wait_read, [this](const boost::system::error_code& error) {
        if (!error) listen();
    });
}

/// One poll. What was already read causes no further wake-up: then the next poll is requested at
/// once.
void ChildControl::listen() {
    if (receive()) {
        boost::asio::post(watch_.get_executor(), [this] { listen(); });
    } else if (!silent_) {
        watch();
    }
}

/// Whether there may be more.
bool ChildControl::receive() {
    for (int messages = 0; messages < kMessagesPerPoll; ++messages) {
        if (silent_) return false;
        Result<std::optional<ControlSocket::Received>> received = socket_.try_receive();
        if (!received.ok()) {
            silent_ = true;
            on_silence_(received.error());
        } else if (!received.value()) {
            return false;
        } else {
            on_message_(std::move(*received.value()));
        }
    }
    return true;
}

void ChildControl::finish() {
    for (int i = 0; i < kLastPolls && receive();) ++i;
    silent_ = true;
}

Status ChildControl::send(const control::Message& message,
                          std::span<const int> files,
                          std::chrono::milliseconds limit,
                          Envelope envelope) {
    if (silent_) return Error{Errc::PeerGone, title_ + " is not listening any more"};
    const Status sent = outbox_.push(socket_, ControlSocket::Frame{message, files, envelope}, limit,
                                     ControlOutbox::Clock::now());
    if (!sent.ok()) fall_silent(sent.error());
    return sent;
}

bool ChildControl::flush(bool stopped) {
    if (silent_ || outbox_.empty()) return false;
    const auto now = ControlOutbox::Clock::now();
    if (stopped) outbox_.excuse(now);
    const Result<bool> moved = outbox_.flush(socket_, now);
    if (!moved.ok()) fall_silent(moved.error());
    return moved.ok() && moved.value();
}

void ChildControl::fall_silent(const Error& error) {
    // If it has closed its end, that is how it is reported.
    (void)receive();
    if (silent_) return;
    // Half a message may have been sent: no further message can follow on this socket.
    silent_ = true;
    on_silence_({Errc::System, title_ + ": " + error.what});
}

}  // namespace paceline
