// CancelBoard: tells running jobs what has become stale: a whole attempt of a request, or rows of
// it.
//
// A job occupies its stage's loop, so it receives no message; between layers it reads its line
// here. A line may lack an entry (requests share lines, id modulo the number of lines: the entry of
// a newer request overwrites that of an older one, whose job then runs to its end). An entry is
// never wrong: a row that it makes stale is stale.
//
// Every process of the pipeline maps the board for writing; only the writers named below should
// write a field, which is not enforced. A process that violates this can cancel work that is still
// needed. The size is sealed. Any threads.
//
//   line, 128 bytes:   word = low half of the request id << 32 | attempts below this are cancelled
//                             (the conductor writes)
//                      watermark = the committed token at a position (the last segment writes)
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/ring_layout.hpp"
#include "ipc/transport/shm_region.hpp"

namespace paceline {

inline constexpr std::size_t kCancelLines = 64;

/// The committed-token watermark of one attempt: a position and its token, from one writer at a
/// time (the last segment, or its next incarnation) to many readers: a seqlock. A reader gets a
/// whole entry or none, and never waits; a writer that died in mid-write leaves none until the next
/// write.
class WatermarkCell {
public:
    struct Watermark {
        Position position = 0;
        TokenId token = 0;
        friend bool operator==(Watermark, Watermark) = default;
    };
    void write(RequestId request, Attempt attempt, Watermark watermark);
    /// Nothing if it is about another attempt, or is being written.
    [[nodiscard]] std::optional<Watermark> read(RequestId request, Attempt attempt) const;
    /// Of whichever attempt it is about, and that attempt's mark.
    [[nodiscard]] std::optional<std::pair<std::uint64_t, Watermark>> read_any() const;

private:
    // Odd while the other two change. The owner alone would not do as the sequence: two requests
    // that share a line take turns, and a slow reader would take the other's watermark for its own.
    std::atomic<std::uint64_t> sequence_;
    std::atomic<std::uint64_t> owner_;      // low half of the request id << 32 | attempt
    std::atomic<std::uint64_t> watermark_;  // position << 32 | token
};

class CancelBoard {
public:
    using Word = std::atomic<std::uint64_t>;

    [[nodiscard]] static Result<ShmFile> create();
    [[nodiscard]] static Result<CancelBoard> attach(ShmRegion region);

    /// The conductor: attempts of `request` below `valid` are cancelled.
    void cancel_before(RequestId request, Attempt valid);
    /// The word to look at for this request (CancelToken::watch()). Valid as long as the board.
    [[nodiscard]] const Word* word_of(RequestId request) const;
    /// What the word holds while `attempt` is valid and nothing newer is known: the job's work is
    /// cancelled once the word has the same upper half and a greater lower one.
    [[nodiscard]] static std::uint64_t mark_of(RequestId request, Attempt attempt);

    /// A line as it stands, for a copy of the board on another machine. Requests are told by the
    /// low half of their number, as the board knows them.
    struct Cancelled {
        RequestId request;
        Attempt valid;
        friend bool operator==(const Cancelled&, const Cancelled&) = default;
    };
    struct Committed {
        RequestId request;
        Attempt attempt;
        WatermarkCell::Watermark watermark;
        friend bool operator==(const Committed&, const Committed&) = default;
    };
    [[nodiscard]] Cancelled cancelled_at(std::size_t line) const;
    /// Nothing while it is written, or if it was never written.
    [[nodiscard]] std::optional<Committed> committed_at(std::size_t line) const;

    /// The verifier: the token of `request` at `position` is `token`.
    void publish_watermark(RequestId request, Attempt attempt, Position position, TokenId token);
    /// The cell to look at for this request. Valid as long as the board.
    [[nodiscard]] const WatermarkCell* watermark_of(RequestId request) const;

private:
    struct Line {
        alignas(kLineBytes) Word word;
        WatermarkCell watermark;
    };
    explicit CancelBoard(ShmRegion region, Line* lines)
        : region_{std::move(region)}, lines_{lines} {}
    ShmRegion region_;
    Line* lines_;
};

}  // namespace paceline
