#include "actors/conductor/progress_watch.hpp"

#include <algorithm>

namespace paceline {
namespace {

constexpr Micros kPeriodMax{1'000'000};
/// The longest wait shrinks by this fraction with each verdict, so that one slow batch does not
/// stretch all later limits.
constexpr int kFading = 64;

}  // namespace

Micros ProgressWatch::period() const {
    return std::clamp(rules_.floor / 8, Micros{1}, kPeriodMax);
}

void ProgressWatch::restart(Wait& wait, Micros now) const {
    wait.since = now;
    wait.quiet_since = now;
    wait.allowance = Micros{0};
}

void ProgressWatch::begun(RequestId request, std::int32_t rows, Micros now) {
    if (waits_.empty()) looked_at_ = now;
    Wait& wait = waits_[request];
    restart(wait, now);
    wait.rows = rows;
    wait.answered = false;
}

void ProgressWatch::verdict(RequestId request, Micros now) {
    const auto found = waits_.find(request);
    if (found == waits_.end()) return;
    Wait& wait = found->second;
    if (wait.answered) longest_ = std::max(now - wait.since, longest_ - longest_ / kFading);
    restart(wait, now);
    wait.rows = 0;
    wait.answered = true;
}

void ProgressWatch::excuse_pause(Micros now) {
    const Micros gap = now - looked_at_;
    looked_at_ = now;
    if (gap <= 2 * period()) return;
    for (auto& [request, wait] : waits_) {
        wait.since = std::min(now, wait.since + gap - period());
        wait.quiet_since = std::min(now, wait.quiet_since + gap - period());
    }
}

std::vector<ProgressWatch::Overdue> ProgressWatch::overdue(Micros now,
                                                           std::optional<std::uint64_t> rows_done) {
    if (idle()) return {};
    excuse_pause(now);
    const bool moved = rows_done && *rows_done != rows_done_;
    rows_done_ = rows_done.value_or(0);
    std::int64_t rows_in_front = 0;
    for (const auto& [request, wait] : waits_) rows_in_front += wait.rows;

    const Micros limit = std::max(rules_.floor, rules_.slack * longest_);
    std::vector<Overdue> found;
    for (auto& [request, wait] : waits_) {
        if (moved) wait.quiet_since = now;
        wait.allowance = std::max(wait.allowance, rows_in_front * rules_.row_limit);
        const Micros most = limit + wait.allowance;
        const bool silent = rows_done && now - wait.quiet_since > limit;
        if (!silent && now - wait.since <= most) continue;
        found.push_back({request, now - wait.since, silent ? limit : most});
    }
    return found;
}

}  // namespace paceline
