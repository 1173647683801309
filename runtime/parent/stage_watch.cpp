#include "runtime/parent/stage_watch.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <limits>
#include <utility>

#include "ipc/base/faults.hpp"
#include "runtime/loop/job_limits.hpp"

namespace paceline {
namespace {

/// Time for a continued process until its loop has published a new activity.
constexpr std::chrono::milliseconds kAfterStop{500};

std::string in_ms(std::chrono::nanoseconds time) {
    return fmt::format("{} ms",
                       std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

}  // namespace

void StageWatch::stopped(bool is_stopped, Nanos now) {
    if (is_stopped) {
        if (!stopped_since_) stopped_since_ = now;
        return;
    }
    if (!stopped_since_) return;
    const Nanos since = *std::exchange(stopped_since_, std::nullopt);
    paused(now, now - since);
}

void StageWatch::paused(Nanos now, Nanos gap) {
    if (planted(PlantedBug::PauseCountsAsHang)) return;
    lenient_until_ = now + kAfterStop;
    if (stopped_since_) *stopped_since_ = std::min(now, *stopped_since_ + gap);
    pauses_.push_back({now, gap});
    if (pauses_.size() > kPausesMax) pauses_.pop_front();
}

/// The part of an activity that began at `since` in which nothing ran.
StageWatch::Nanos StageWatch::paused_since(Nanos since) const {
    Nanos sum{0};
    for (const Pause& pause : pauses_) {
        sum += std::clamp(pause.until - since, Nanos{0}, pause.gap);
    }
    return sum;
}

/// Whether all pauses that are known came after that.
bool StageWatch::is_always_late(Nanos since) const {
    return pauses_.size() == kPausesMax && pauses_.front().until > since;
}

std::optional<std::string> StageWatch::complaint(const TelemetrySnapshot& telemetry,
                                                 Nanos now) const {
    if (stopped_since_) {
        if (now - *stopped_since_ <= stop_grace_) return std::nullopt;
        return "was stopped and not continued for " + in_ms(now - *stopped_since_);
    }
    if (telemetry.deadline.count() == 0) return std::nullopt;
    const Nanos paused = paused_since(telemetry.since);
    if (now <= telemetry.deadline + paused) return std::nullopt;
    if (now < lenient_until_ && !is_always_late(telemetry.since)) return std::nullopt;
    return std::string{"hangs: "} + name_of(telemetry.activity) + " for " +
           in_ms(now - telemetry.since - paused) + ", at most " +
           in_ms(telemetry.deadline - telemetry.since) + " were expected";
}

JobRecords inherited_jobs(const TelemetrySnapshot& telemetry,
                          bool hung,
                          std::chrono::microseconds limit_max) {
    if (planted(PlantedBug::JobsNotInherited)) return {};
    JobRecords jobs = telemetry.jobs;
    if (!hung || telemetry.activity != Activity::Computing) return jobs;
    const auto expected =
        std::chrono::duration_cast<std::chrono::microseconds>(telemetry.deadline - telemetry.since);
    const std::int64_t most = limit_max.count() / kJobSlack;
    const std::int64_t took = std::clamp<std::int64_t>(expected.count(), 0, most);
    std::uint32_t& longest = jobs.at(telemetry.job).longest_us;
    longest = std::max(longest, static_cast<std::uint32_t>(std::min<std::int64_t>(
                                    took, std::numeric_limits<std::uint32_t>::max())));
    return jobs;
}

}  // namespace paceline
