// CancelBoard: says to jobs that are running which attempts of which requests are void.
//
// A job holds its stage's loop, so it hears no message; between layers it looks at one word here.
// Only the conductor writes. A word is a hint: it ends useless work early, and what is void is
// dropped by its attempt anyway. Requests share lines (id modulo the number of lines), so a newer
// request may overwrite the hint about an older one; then that job just runs to its end.
//
//   line, 128 bytes:   word = low half of the request id << 32 | attempts below this are void
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/ring_layout.hpp"
#include "ipc/shm_region.hpp"

namespace paceline {

inline constexpr std::size_t kCancelLines = 64;

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

private:
    struct Line {
        alignas(kLineBytes) Word word;
    };
    explicit CancelBoard(ShmRegion region, Line* lines)
        : region_{std::move(region)}, lines_{lines} {}
    ShmRegion region_;
    Line* lines_;
};

}  // namespace paceline
