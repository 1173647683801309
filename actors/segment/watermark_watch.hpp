// WatermarkWatch: tells a running job which of its rows have become stale, from the committed-token
// watermark and the cancelled attempts in shared memory (ipc/wire/cancel_board.hpp).
//
// A row knows the tokens of its path. It is stale if another token was committed at a position of
// that path, if a row above it is stale, or if its request's attempt is cancelled. The board holds
// only the newest watermark, so stale rows are remembered; once all rows are stale the job is
// cancelled.
// Threads: made and read by the loop before and after the job, asked by one thread in between.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ipc/wire/cancel_board.hpp"
#include "model/backend.hpp"

namespace paceline {

class WatermarkWatch final : public CancelToken::RowWatch {
public:
    /// A request in the job. watermark, word: nullptr without a board.
    struct Part {
        RequestId request;
        Attempt attempt;
        const WatermarkCell* watermark = nullptr;
        const std::atomic<std::uint64_t>* word = nullptr;
    };
    struct WatchedRow {
        std::size_t part = 0;
        std::optional<std::size_t> parent = std::nullopt;  // an earlier row of the job
        Position first = 0;                                // of the path: where tokens[0] stands
        std::vector<TokenId> tokens = {};                  // down to the row itself
    };

    /// Whether the token after `position` is no longer wanted: it is committed, or the attempt is
    /// cancelled.
    [[nodiscard]] static bool is_decided(const Part& part, Position position);

    /// `cancel` is raised when no row is left; it must outlive the watch's use.
    explicit WatermarkWatch(CancelToken& cancel) : cancel_{cancel} {}

    [[nodiscard]] std::size_t add(const Part& part);
    void add(WatchedRow row);

    [[nodiscard]] bool stale(std::size_t row) const override;
    /// The attempt is cancelled: the conductor's message about it is under way.
    [[nodiscard]] bool is_cancelled(std::size_t part) const;

private:
    [[nodiscard]] static bool is_cancelled(const Part& part);
    [[nodiscard]] bool contradicted(const WatchedRow& row) const;

    CancelToken& cancel_;
    std::vector<Part> parts_;
    std::vector<WatchedRow> rows_;
    mutable std::vector<bool> stale_;  // found so far
    mutable std::size_t stale_count_ = 0;
};

}  // namespace paceline
