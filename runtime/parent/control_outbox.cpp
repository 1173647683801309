#include "runtime/parent/control_outbox.hpp"

#include <fmt/core.h>
#include <utility>

namespace paceline {
namespace {

/// The owner did not run for this long: the machine may have been suspended, so the limit starts
/// again.
constexpr std::chrono::milliseconds kLateFlush{1'000};

}  // namespace

Status ControlOutbox::push(ControlSocket& socket,
                           ControlSocket::Frame frame,
                           std::chrono::milliseconds limit,
                           Clock::time_point now) {
    if (waiting_.empty()) {
        const Result<ControlSocket::Sent> sent = socket.try_send(frame);
        if (!sent.ok()) return sent.error();
        if (sent.value() == ControlSocket::Sent::All) return {};
        took_at_ = looked_at_ = now;
    }
    if (bytes_ + frame.bytes_left() > kBytesMax) {
        return Error{Errc::System,
                     fmt::format("{} bytes of control messages wait to be read already", bytes_)};
    }
    if (const Status owned = frame.own_files(); !owned.ok()) return owned;
    bytes_ += frame.bytes_left();
    waiting_.push_back({std::move(frame), limit});
    return {};
}

Result<bool> ControlOutbox::flush(ControlSocket& socket, Clock::time_point now) {
    bool moved = false;
    while (!waiting_.empty()) {
        ControlSocket::Frame& frame = waiting_.front().frame;
        const std::size_t before = frame.bytes_left();
        const Result<ControlSocket::Sent> sent = socket.try_send(frame);
        if (!sent.ok()) return sent.error();
        const std::size_t took = before - frame.bytes_left();
        bytes_ -= took;
        moved = moved || took > 0;
        if (sent.value() != ControlSocket::Sent::All) break;
        waiting_.pop_front();
    }
    const bool late = now - std::exchange(looked_at_, now) > kLateFlush;
    if (moved || late || waiting_.empty()) {
        took_at_ = now;
    } else if (now - took_at_ > waiting_.front().limit) {
        return Error{Errc::System,
                     fmt::format("the other end of a control socket has read nothing for {} ms",
                                 waiting_.front().limit.count())};
    }
    return moved;
}

}  // namespace paceline
