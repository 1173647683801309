#include "runtime/parent/stage_watch.hpp"

#include <fmt/core.h>

namespace paceline {
namespace {

/// What a process that was continued may take until its loop has published something new.
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
    stopped_since_.reset();
    excuse(now);
}

void StageWatch::excuse(Nanos now) {
    lenient_until_ = now + kAfterStop;
}

std::optional<std::string> StageWatch::complaint(const TelemetrySnapshot& telemetry,
                                                 Nanos now) const {
    if (stopped_since_) {
        if (now - *stopped_since_ <= stop_grace_) return std::nullopt;
        return "was stopped and not continued for " + in_ms(now - *stopped_since_);
    }
    if (telemetry.deadline.count() == 0 || now <= telemetry.deadline || now < lenient_until_) {
        return std::nullopt;
    }
    return std::string{"hangs: "} + name_of(telemetry.activity) + " for " +
           in_ms(now - telemetry.since) + ", at most " +
           in_ms(telemetry.deadline - telemetry.since) + " were expected";
}

}  // namespace paceline
