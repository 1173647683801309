#include "ipc/cancel_board.hpp"

#include <new>
#include <string>
#include <utility>

namespace paceline {

Result<ShmFile> CancelBoard::create() {
    return ShmFile::create("cancel", kCancelLines * sizeof(Line), {});
}

Result<CancelBoard> CancelBoard::attach(ShmRegion region) {
    static_assert(Word::is_always_lock_free, "must work across processes");
    if (region.bytes().size() < kCancelLines * sizeof(Line)) {
        return Error{Errc::Protocol,
                     "a cancel board has only " + std::to_string(region.bytes().size()) + " bytes"};
    }
    auto* lines = std::launder(reinterpret_cast<Line*>(region.bytes().data()));
    return CancelBoard{std::move(region), lines};
}

std::uint64_t CancelBoard::mark_of(RequestId request, Attempt attempt) {
    return (request.value & 0xffffffffU) << 32U | attempt.value;
}

const CancelBoard::Word* CancelBoard::word_of(RequestId request) const {
    return &lines_[request.value % kCancelLines].word;
}

void CancelBoard::declare_void(RequestId request, Attempt valid) {
    // Relaxed: a hint that publishes nothing else.
    lines_[request.value % kCancelLines].word.store(mark_of(request, valid),
                                                    std::memory_order_relaxed);
}

}  // namespace paceline
