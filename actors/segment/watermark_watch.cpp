#include "actors/segment/watermark_watch.hpp"

#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

std::size_t WatermarkWatch::add(const Part& part) {
    parts_.push_back(part);
    return parts_.size() - 1;
}

void WatermarkWatch::add(WatchedRow row) {
    PACE_CHECK(row.part < parts_.size(), "a row of no request is watched");
    PACE_CHECK(!row.parent || *row.parent < rows_.size(), "a row is watched before its parent");
    rows_.push_back(std::move(row));
    stale_.push_back(false);
}

bool WatermarkWatch::is_cancelled(std::size_t part) const {
    return is_cancelled(parts_[part]);
}

bool WatermarkWatch::is_decided(const Part& part, Position position) {
    if (is_cancelled(part)) return true;
    if (part.watermark == nullptr) return false;
    const std::optional<WatermarkCell::Watermark> watermark =
        part.watermark->read(part.request, part.attempt);
    return watermark && watermark->position > position;
}

bool WatermarkWatch::is_cancelled(const Part& watched) {
    if (watched.word == nullptr) return false;
    const std::uint64_t mark = CancelBoard::mark_of(watched.request, watched.attempt);
    const std::uint64_t word = watched.word->load(std::memory_order_relaxed);
    return word > mark && (word >> 32U) == (mark >> 32U);
}

bool WatermarkWatch::contradicted(const WatchedRow& row) const {
    const Part& part = parts_[row.part];
    if (part.watermark == nullptr) return false;
    const std::optional<WatermarkCell::Watermark> watermark =
        part.watermark->read(part.request, part.attempt);
    if (!watermark || watermark->position < row.first) return false;
    const auto at = static_cast<std::size_t>(watermark->position - row.first);
    return at < row.tokens.size() && row.tokens[at] != watermark->token;
}

bool WatermarkWatch::stale(std::size_t row) const {
    if (stale_[row]) return true;
    const WatchedRow& watched = rows_[row];
    const bool lost = (watched.parent && stale(*watched.parent)) || is_cancelled(watched.part) ||
                      contradicted(watched);
    if (!lost) return false;
    stale_[row] = true;
    if (++stale_count_ == rows_.size()) cancel_.cancel();
    return true;
}

}  // namespace paceline
