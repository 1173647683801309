#include "launch/session/service/service_figures.hpp"

#include <utility>

namespace paceline {

void ServiceFigures::count(const AnswerStats& stats, const Status& status) {
    const bool cancelled = stats.finish == FinishReason::Interrupted;
    ++(!status.ok() ? totals_.failed : cancelled ? totals_.cancelled : totals_.answers);
    totals_.prompt_tokens += static_cast<std::uint64_t>(stats.prompt_tokens);
    totals_.cached_tokens += static_cast<std::uint64_t>(stats.cached_tokens);
    totals_.verdicts.add(stats.verdicts);
    totals_.replays += stats.replays;
    totals_.preemptions += stats.preemptions;
}

void ServiceFigures::read_usage(const PipelineSession& session, Clock::time_point now) {
    if (now - usage_read_ < kUsagePeriod) return;
    usage_read_ = now;
    totals_.usage = session.usage();
    totals_.usage.add_counts_of(earlier_);
}

void ServiceFigures::begin_pipeline(PipelineUsage ended) {
    ended.add_counts_of(earlier_);
    earlier_ = std::move(ended);
    recovering_since_.reset();
    usage_read_ = {};
}

ServiceSnapshot ServiceFigures::snapshot(std::span<const LostStage> lost,
                                         bool draining,
                                         bool changing,
                                         Clock::time_point now) {
    ServiceSnapshot next = totals_;
    bool essential = false;
    for (const LostStage& stage : lost) {
        next.why += (next.why.empty() ? "" : ", ") + stage.name;
        essential = essential || stage.essential;
    }
    next.state = draining        ? ServiceState::Draining
                 : essential     ? ServiceState::Recovering
                 : changing      ? ServiceState::Changing
                 : !lost.empty() ? ServiceState::Degraded
                                 : ServiceState::Ok;
    if (!essential) {
        recovering_since_.reset();
    } else if (!recovering_since_) {
        recovering_since_ = now;
    }
    next.recovering_since = recovering_since_.value_or(Clock::time_point{});
    next.heartbeat = now;
    return next;
}

}  // namespace paceline
