// ServiceFigures: what a service has counted since its start, over all of its pipelines, and the
// snapshot that follows from it.
//
// What a pipeline uses is read from its session, but not more often than each kUsagePeriod.
// Threads: the loop's.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "actors/conductor/conductor_actor.hpp"
#include "actors/decoding/answer.hpp"
#include "launch/session/pipeline_session.hpp"
#include "launch/session/service/service_snapshot.hpp"

namespace paceline {

class ServiceFigures {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kUsagePeriod{500};

    /// A token of an answer.
    void count_token() { ++totals_.tokens; }
    /// An answer that is over.
    void count(const AnswerStats& stats, const Status& status);

    void read_usage(const PipelineSession& session, Clock::time_point now);
    /// Another pipeline begins; `ended`: what the one before has used, whose counts go on.
    void begin_pipeline(PipelineUsage ended);

    /// With the state of a service that has not failed; stages, running and waiting are left out.
    /// Of several states the first in this order: Draining, Recovering, Changing, Degraded.
    [[nodiscard]] ServiceSnapshot snapshot(std::span<const LostStage> lost,
                                           bool draining,
                                           bool changing,
                                           Clock::time_point now);

private:
    ServiceSnapshot totals_;
    std::optional<Clock::time_point> recovering_since_;
    Clock::time_point usage_read_{};
    PipelineUsage earlier_;  // of the pipelines before this one
};

}  // namespace paceline
