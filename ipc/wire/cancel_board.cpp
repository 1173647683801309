#include "ipc/wire/cancel_board.hpp"

#include <fmt/core.h>
#include <new>
#include <utility>

namespace paceline {
namespace {

constexpr std::uint64_t halves(std::uint64_t upper, std::uint64_t lower) {
    return (upper & 0xffffffffU) << 32U | (lower & 0xffffffffU);
}

}  // namespace

// No fences: a reader that sees a new owner or watermark (acquire of a release) also sees the odd
// sequence that came before it, so its second look differs from its first.
void WatermarkCell::write(RequestId request, Attempt attempt, Watermark watermark) {
    // Odd already if the last writer died half way.
    const std::uint64_t changing = sequence_.load(std::memory_order_relaxed) | 1U;
    sequence_.store(changing, std::memory_order_relaxed);
    owner_.store(CancelBoard::mark_of(request, attempt), std::memory_order_release);
    watermark_.store(halves(static_cast<std::uint32_t>(watermark.position),
                            static_cast<std::uint32_t>(watermark.token)),
                     std::memory_order_release);
    sequence_.store(changing + 1, std::memory_order_release);
}

std::optional<WatermarkCell::Watermark> WatermarkCell::read(RequestId request,
                                                            Attempt attempt) const {
    const auto entry = read_any();
    if (!entry || entry->first != CancelBoard::mark_of(request, attempt)) return std::nullopt;
    return entry->second;
}

std::optional<std::pair<std::uint64_t, WatermarkCell::Watermark>> WatermarkCell::read_any() const {
    const std::uint64_t before = sequence_.load(std::memory_order_acquire);
    const std::uint64_t owner = owner_.load(std::memory_order_acquire);
    const std::uint64_t watermark = watermark_.load(std::memory_order_acquire);
    const std::uint64_t after = sequence_.load(std::memory_order_relaxed);
    const bool whole = before == after && before % 2 == 0 && before != 0;
    if (!whole) return std::nullopt;
    return std::pair{owner, Watermark{static_cast<Position>(watermark >> 32U),
                                      static_cast<TokenId>(watermark & 0xffffffffU)}};
}

Result<ShmFile> CancelBoard::create() {
    return ShmFile::create("cancel", kCancelLines * sizeof(Line), {});
}

Result<CancelBoard> CancelBoard::attach(ShmRegion region) {
    static_assert(Word::is_always_lock_free, "must work across processes");
    static_assert(sizeof(Line) == kLineBytes, "as drawn in the header");
    if (region.bytes().size() < kCancelLines * sizeof(Line)) {
        return Error{Errc::Protocol,
                     fmt::format("a cancel board has only {} bytes", region.bytes().size())};
    }
    auto* lines = std::launder(reinterpret_cast<Line*>(region.bytes().data()));
    return CancelBoard{std::move(region), lines};
}

std::uint64_t CancelBoard::mark_of(RequestId request, Attempt attempt) {
    return halves(request.value, attempt.value);
}

const CancelBoard::Word* CancelBoard::word_of(RequestId request) const {
    return &lines_[request.value % kCancelLines].word;
}

void CancelBoard::cancel_before(RequestId request, Attempt valid) {
    // Relaxed: a hint that publishes nothing else.
    lines_[request.value % kCancelLines].word.store(mark_of(request, valid),
                                                    std::memory_order_relaxed);
}

CancelBoard::Cancelled CancelBoard::cancelled_at(std::size_t line) const {
    const std::uint64_t word = lines_[line % kCancelLines].word.load(std::memory_order_relaxed);
    return {RequestId{word >> 32U}, Attempt{static_cast<std::uint32_t>(word & 0xffffffffU)}};
}

std::optional<CancelBoard::Committed> CancelBoard::committed_at(std::size_t line) const {
    const auto entry = lines_[line % kCancelLines].watermark.read_any();
    if (!entry) return std::nullopt;
    return Committed{RequestId{entry->first >> 32U},
                     Attempt{static_cast<std::uint32_t>(entry->first & 0xffffffffU)},
                     entry->second};
}

void CancelBoard::publish_watermark(RequestId request,
                                    Attempt attempt,
                                    Position position,
                                    TokenId token) {
    lines_[request.value % kCancelLines].watermark.write(request, attempt, {position, token});
}

const WatermarkCell* CancelBoard::watermark_of(RequestId request) const {
    return &lines_[request.value % kCancelLines].watermark;
}

}  // namespace paceline
