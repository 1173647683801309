#include "launch/cli/top/top_table.hpp"

#include <algorithm>

#include "actors/protocol/counters.hpp"
#include "launch/base/print.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {

namespace {

using Seconds = std::chrono::duration<double>;

constexpr std::size_t kNameLength = 10;  // of a stage, on a terminal of 80 columns

const TelemetrySnapshot* find(const PipelineSample& sample, StageId stage) {
    for (const StageSample& entry : sample.stages) {
        if (entry.telemetry.stage == stage) return &entry.telemetry;
    }
    return nullptr;
}

/// What one stage did between two samples.
class Interval {
public:
    Interval(const PipelineSample& before, const PipelineSample& after, StageId stage)
        : before_{find(before, stage)},
          after_{find(after, stage)},
          begin_{before.at},
          end_{after.at},
          seconds_{Seconds{after.at - before.at}.count()} {}

    [[nodiscard]] bool known() const {
        return before_ != nullptr && after_ != nullptr && seconds_ > 0;
    }
    [[nodiscard]] double grown(Counter counter) const {
        const std::uint64_t now = after_->counter(counter);
        const std::uint64_t then = restarted() ? 0 : before_->counter(counter);
        return now > then ? static_cast<double>(now - then) : 0.0;
    }
    [[nodiscard]] double per_second(Counter counter) const { return grown(counter) / seconds_; }
    /// `counter` is time in `activity` that is over; what is going on is added.
    [[nodiscard]] double share(Counter counter, Activity activity) const {
        const double under_way = so_far(*after_, activity, end_) -
                                 (restarted() ? 0.0 : so_far(*before_, activity, begin_));
        return std::clamp((grown(counter) / 1e6 + under_way) / seconds_, 0.0, 1.0);
    }

private:
    [[nodiscard]] bool restarted() const { return before_->epoch != after_->epoch; }
    static double so_far(const TelemetrySnapshot& telemetry,
                         Activity activity,
                         std::chrono::nanoseconds now) {
        if (telemetry.activity != activity || telemetry.since > now) return 0.0;
        return Seconds{now - telemetry.since}.count();
    }

    const TelemetrySnapshot* before_;
    const TelemetrySnapshot* after_;
    std::chrono::nanoseconds begin_;
    std::chrono::nanoseconds end_;
    double seconds_;
};

/// At most four characters: 12ms, 0.3s, 12s, 5m, 3h, 9d.
std::string short_time(std::chrono::nanoseconds time) {
    const double seconds = std::max(0.0, Seconds{time}.count());
    if (seconds < 0.0995) return print("%.0fms", seconds * 1e3);
    if (seconds < 9.95) return print("%.1fs", seconds);
    if (seconds < 99.5) return print("%.0fs", seconds);
    if (seconds < 99.5 * 60) return print("%.0fm", seconds / 60);
    if (seconds < 99.5 * 3600) return print("%.0fh", seconds / 3600);
    return print("%.0fd", std::min(seconds / 86400, 999.0));
}

/// At most five characters: 0.25, 12.3, 123, 1234, 12k, 12M.
std::string short_number(double value) {
    if (value < 9.995) return print("%.2f", value);
    if (value < 99.95) return print("%.1f", value);
    if (value < 9999.5) return print("%.0f", value);
    if (value < 999.5e3) return print("%.0fk", value / 1e3);
    if (value < 999.5e6) return print("%.0fM", value / 1e6);
    return ">1e9";
}

std::string short_count(std::uint64_t value) {
    return value < 10'000 ? std::to_string(value) : short_number(static_cast<double>(value));
}

std::string number_or_dash(const std::optional<double>& value) {
    return value ? short_number(*value) : "-";
}

std::string percent_or_dash(const std::optional<double>& share) {
    return share ? print("%.0f%%", *share * 100) : "-";
}

std::string cut(const std::string& text, std::size_t length) {
    return text.size() <= length ? text : text.substr(0, length - 1) + "~";
}

std::string stage_line(const PipelineSample& before,
                       const PipelineSample& after,
                       const StageSample& stage,
                       std::size_t name_length) {
    const TelemetrySnapshot& telemetry = stage.telemetry;
    const StageRates rates = stage_rates(before, after, telemetry.stage);
    return print("%-*s %7u %3u %-19s %5s %7s %5s %4s %4s %6s", static_cast<int>(name_length),
                 cut(telemetry.name, name_length).c_str(), telemetry.pid,
                 std::min(telemetry.epoch.value, 999U), state_text(stage, after.at).c_str(),
                 short_count(telemetry.gauge(gauges::kQueueDepth)).c_str(),
                 number_or_dash(rates.batches_per_second).c_str(),
                 number_or_dash(rates.rows_per_batch).c_str(), percent_or_dash(rates.busy).c_str(),
                 percent_or_dash(rates.waiting).c_str(),
                 number_or_dash(rates.full_per_second).c_str());
}

}  // namespace

StageRates stage_rates(const PipelineSample& before, const PipelineSample& after, StageId stage) {
    const Interval interval{before, after, stage};
    if (!interval.known()) return {};
    StageRates rates;
    rates.batches_per_second = interval.per_second(counters::kBatches);
    if (const double batches = interval.grown(counters::kBatches); batches > 0) {
        rates.rows_per_batch = interval.grown(counters::kBatchRows) / batches;
    }
    rates.busy = interval.share(Counter::JobMicros, Activity::Computing);
    rates.waiting = interval.share(Counter::WaitMicros, Activity::Waiting);
    rates.full_per_second = interval.per_second(Counter::ChannelFull);
    return rates;
}

PipelineRates pipeline_rates(const PipelineSample& before, const PipelineSample& after) {
    PipelineRates rates;
    double proposed = 0;
    double accepted = 0;
    for (const StageSample& stage : after.stages) {
        const Interval interval{before, after, stage.telemetry.stage};
        if (!interval.known()) continue;
        if (stage.telemetry.stage == kConductor) {
            rates.tokens_per_second = interval.per_second(counters::kTokensCommitted);
        }
        proposed += interval.grown(counters::kTokensProposed);
        accepted += interval.grown(counters::kTokensAccepted);
    }
    if (proposed > 0) rates.acceptance = accepted / proposed;
    return rates;
}

std::string state_text(const StageSample& stage, std::chrono::nanoseconds now) {
    if (stage.process == ProcessState::Gone) return "gone";
    const TelemetrySnapshot& telemetry = stage.telemetry;
    const std::string activity =
        stage.process == ProcessState::Stopped ? "stopped" : name_of(telemetry.activity);
    const bool late = telemetry.deadline.count() != 0 && telemetry.deadline < now;
    return activity + " " + short_time(now - telemetry.since) + (late ? " late" : "");
}

std::vector<std::string> table_lines(const PipelineSample& before,
                                     const PipelineSample& after,
                                     std::size_t columns) {
    const PipelineRates rates = pipeline_rates(before, after);
    std::uint64_t fenced = 0;
    for (const StageSample& stage : after.stages)
        fenced += stage.telemetry.counter(counters::kFenced);
    const TelemetrySnapshot* conductor = find(after, kConductor);
    const auto of_conductor = [&](Counter counter) {
        return short_count(conductor == nullptr ? 0 : conductor->counter(counter));
    };
    std::vector<std::string> lines;
    lines.push_back(print("pipeline %d: %s tokens/s, acceptance %s, fenced %s, restarts %s",
                          static_cast<int>(after.conductor),
                          number_or_dash(rates.tokens_per_second).c_str(),
                          number_or_dash(rates.acceptance).c_str(), short_count(fenced).c_str(),
                          of_conductor(Counter::Restarts).c_str()));
    std::size_t name_length = kNameLength;
    for (const StageSample& stage : after.stages)
        name_length = std::max(name_length, stage.telemetry.name.size());
    const std::size_t room = columns > kTopColumns ? columns - kTopColumns : 0;
    name_length = std::min(name_length, kNameLength + room);
    lines.push_back(print("%-*s %7s %3s %-19s %5s %7s %5s %4s %4s %6s",
                          static_cast<int>(name_length), "stage", "pid", "ep", "state", "queue",
                          "batch/s", "rows", "busy", "wait", "full/s"));
    for (const StageSample& stage : after.stages) {
        lines.push_back(stage_line(before, after, stage, name_length));
    }
    for (std::string& line : lines) line.resize(std::min(line.size(), columns));
    return lines;
}

}  // namespace paceline
