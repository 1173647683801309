// ControlOutbox: the queue of control messages for which one stage's control socket has no room.
//
//   push() ---> socket has room, nothing waits ---> sent at once
//          \--> [waiting, in order] --- flush(), at each poll ---> sent
//
// No call waits, so a stage that does not read (stopped, in a long job) does not block its parent:
// a prompt of 54,000 tokens is more than a socket holds. Bounded: if too many bytes wait, or the
// stage reads nothing within the sender's limit, a call returns an error, after which the owner
// replaces the stage. Descriptors of a waiting message are duplicated, because the sender may close
// its own.
// Threads: one, its owner's.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>

#include "ipc/base/result.hpp"
#include "ipc/wire/control_socket.hpp"

namespace paceline {

class ControlOutbox {
public:
    using Clock = std::chrono::steady_clock;

    /// Two of the longest messages.
    static constexpr std::size_t kBytesMax = 2 * (std::size_t{control::kBeginBytesMax} + 4096);

    /// `limit`: how long the stage may leave this message unread. Errors: PeerGone if the socket is
    /// closed, System if too much waits or a descriptor cannot be copied.
    [[nodiscard]] Status push(ControlSocket& socket,
                              ControlSocket::Frame frame,
                              std::chrono::milliseconds limit,
                              Clock::time_point now);
    /// Whether anything was sent. Errors: as push(); System if the stage took nothing for too long.
    [[nodiscard]] Result<bool> flush(ControlSocket& socket, Clock::time_point now);
    /// The stage cannot read at the moment: its limit starts again from `now`.
    void excuse(Clock::time_point now) { took_at_ = now; }
    [[nodiscard]] bool empty() const { return waiting_.empty(); }

private:
    struct Waiting {
        ControlSocket::Frame frame;
        std::chrono::milliseconds limit;
    };
    std::deque<Waiting> waiting_;
    std::size_t bytes_ = 0;  // of them, as they were pushed
    Clock::time_point looked_at_{};
    Clock::time_point took_at_{};  // the stage took something, or had nothing to take
};

}  // namespace paceline
