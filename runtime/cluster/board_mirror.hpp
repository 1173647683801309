// BoardMirror: keeps a copy of the cancel board on another machine.
//
// Sends the entries of the local board that have changed, and writes those that come. What was
// written here is not sent back. Late and lost entries are allowed, as the board itself allows
// them: an entry makes stale only what is stale. Threads: one, that of the connection; the board is
// written by other processes at the same time.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "ipc/remote/node_frames.hpp"
#include "ipc/wire/cancel_board.hpp"
#include "runtime/cluster/frame_port.hpp"

namespace paceline {

class BoardMirror {
public:
    explicit BoardMirror(std::shared_ptr<CancelBoard> board) : board_{std::move(board)} {}

    void pump(FramePort& port);
    void take(const remote::BoardLine& line);

private:
    struct Seen {
        CancelBoard::Cancelled cancelled{};
        std::optional<CancelBoard::Committed> committed{};
    };
    std::shared_ptr<CancelBoard> board_;
    std::array<Seen, kCancelLines> seen_{};
};

}  // namespace paceline
