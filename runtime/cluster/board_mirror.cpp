#include "runtime/cluster/board_mirror.hpp"

namespace paceline {

void BoardMirror::pump(FramePort& port) {
    for (std::size_t line = 0; line < kCancelLines; ++line) {
        Seen& seen = seen_[line];
        const CancelBoard::Cancelled cancelled = board_->cancelled_at(line);
        if (cancelled != seen.cancelled) {
            const remote::BoardLine news{cancelled.request, cancelled.valid, false, 0, 0};
            if (port.send(news, remote::Lane::Control, true) != remote::Sent::Queued) return;
            seen.cancelled = cancelled;
        }
        const auto committed = board_->committed_at(line);
        if (!committed || committed == seen.committed) continue;
        const remote::BoardLine news{committed->request, committed->attempt, true,
                                     committed->watermark.position, committed->watermark.token};
        if (port.send(news, remote::Lane::Control, true) != remote::Sent::Queued) return;
        seen.committed = committed;
    }
}

void BoardMirror::take(const remote::BoardLine& line) {
    Seen& seen = seen_[line.request.value % kCancelLines];
    if (line.committed) {
        board_->publish_watermark(line.request, line.attempt, line.position, line.token);
        seen.committed = {line.request, line.attempt, {line.position, line.token}};
    } else {
        board_->cancel_before(line.request, line.attempt);
        seen.cancelled = {line.request, line.attempt};
    }
}

}  // namespace paceline
