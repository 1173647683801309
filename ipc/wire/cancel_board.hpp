// CancelBoard: says to jobs that are running what has become useless: a whole attempt, or rows of
// it (the cancellation wave that runs backwards through the segments).
//
// A job holds its stage's loop, so it hears no message; between layers it looks at its line here.
// What it finds may be missing (requests share lines, id modulo the number of lines: a newer one
// overwrites what is said of an older one, whose job then runs to its end), but never false: a row
// that is called dead is dead.
//
// Every process of the pipeline maps the board for writing, and who writes what is a rule, not
// something that is enforced: whoever scribbles here can end work that was not useless, and the
// judge is trusted with the text anyway. Sealed: nobody can resize it. Any threads.
//
//   line, 128 bytes:   word = low half of the request id << 32 | attempts below this are void
//                             (the conductor writes)
//                      fate = the text's token at a position (the judge writes)
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/ring_layout.hpp"
#include "ipc/transport/shm_region.hpp"

namespace paceline {

inline constexpr std::size_t kCancelLines = 64;

/// What the text of one attempt has become at one position, said by one writer at a time (the
/// judge, or its next incarnation) to many readers: a seqlock. Readers get the whole truth or
/// nothing, and never wait; a writer that died half way leaves nothing until the next one writes.
class FateCell {
public:
    struct Fate {
        Position position = 0;
        TokenId token = 0;
        friend bool operator==(Fate, Fate) = default;
    };
    void write(RequestId request, Attempt attempt, Fate fate);
    /// Nothing if it is about another attempt, or is being written.
    [[nodiscard]] std::optional<Fate> read(RequestId request, Attempt attempt) const;

private:
    // Odd while the other two change. The owner alone would not do as the sequence: two requests
    // that share a line take turns, and a slow reader would take the other's fate for its own.
    std::atomic<std::uint64_t> sequence_;
    std::atomic<std::uint64_t> owner_;  // low half of the request id << 32 | attempt
    std::atomic<std::uint64_t> fate_;   // position << 32 | token
};

class CancelBoard {
public:
    using Word = std::atomic<std::uint64_t>;

    [[nodiscard]] static Result<ShmFile> create();
    [[nodiscard]] static Result<CancelBoard> attach(ShmRegion region);

    /// The conductor: attempts of `request` below `valid` are void.
    void declare_void(RequestId request, Attempt valid);
    /// The word to look at for this request (CancelToken::watch()). Valid as long as the board.
    [[nodiscard]] const Word* word_of(RequestId request) const;
    /// What the word holds while `attempt` is valid and nothing newer is known: the job's work is
    /// void once the word has the same upper half and a greater lower one.
    [[nodiscard]] static std::uint64_t mark_of(RequestId request, Attempt attempt);

    /// The judge: the token of `request` at `position` is `token`.
    void declare_fate(RequestId request, Attempt attempt, Position position, TokenId token);
    /// The cell to look at for this request. Valid as long as the board.
    [[nodiscard]] const FateCell* fate_of(RequestId request) const;

private:
    struct Line {
        alignas(kLineBytes) Word word;
        FateCell fate;
    };
    explicit CancelBoard(ShmRegion region, Line* lines)
        : region_{std::move(region)}, lines_{lines} {}
    ShmRegion region_;
    Line* lines_;
};

}  // namespace paceline
