// ControlOutbox: the cold messages to one stage that its control socket has no room for yet.
//
//   push() ---> socket has room, nothing waits ---> sent at once
//          \--> [waiting, in order] --- flush(), at each poll ---> sent
//
// Never waits itself, so a stage that does not read (stopped, in a long job) keeps its parent from
// nothing: a prompt of 54,000 tokens is more than a socket holds. Bounded: a stage for which too much
// waits, or which takes nothing for as long as the sender allowed, is an error, and its owner's to
// replace. Descriptors of a message that waits are copied: the sender's may be closed meanwhile.
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
    /// The stage cannot read at the moment: its time begins anew.
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
