#include "launch/session/session_figures.hpp"

#include <algorithm>
#include <cstddef>

#include "actors/protocol/counters.hpp"
#include "launch/session/pipeline_usage.hpp"

namespace paceline {

void SessionFigures::reset(std::span<const StageRecord> records) {
    tally_ = {};
    before_.clear();
    for (const StageRecord& record : records)
        before_[{record.id, record.epoch}] = record.telemetry.snapshot().counters;
}

/// What an incarnation has counted since reset().
SessionFigures::Counts SessionFigures::growth_of(const StageRecord& record) const {
    Counts counts = record.telemetry.snapshot().counters;
    const auto before = before_.find({record.id, record.epoch});
    if (before == before_.end()) return counts;
    for (std::size_t i = 0; i < kCounters; ++i) counts[i] -= std::min(counts[i], before->second[i]);
    return counts;
}

std::int32_t SessionFigures::prefilled_rows(std::span<const StageRecord> records) const {
    std::uint64_t rows = 0;
    for (const StageRecord& record : records)
        rows += growth_of(record)[static_cast<std::size_t>(counters::kPrefillRows)];
    return static_cast<std::int32_t>(rows / static_cast<std::uint64_t>(config_.segments()));
}

PipelineStats SessionFigures::stats(std::span<const StageRecord> records, double seconds) const {
    PipelineStats stats;
    stats.method = config_.name;
    stats.seconds = seconds;
    stats.verdicts = tally_;
    stats.metrics = metrics_of(config_);
    if (config_.self_draft)
        stats.self_draft = self_draft_view(model_, config_.self_draft->options.auto_off,
                                           config_.self_draft->short_list);
    if (config_.draft && (config_.draft->searches() || config_.draft->is_tapped()))
        stats.draft_skip = DraftSkipView{.layers = model_.layers};
    for (const PlacedProcess& process : placement_.processes)
        stats.processes.push_back({.name = process.name});
    for (const StageRecord& record : records) {
        const Counts grown = growth_of(record);
        for (std::size_t i = 0; i < kCounters; ++i) stats.counters[i] += grown[i];
        add_gauges(record, stats);
        add_process(record, grown, stats);
    }
    return stats;
}

/// The newest incarnation of a process is the last one of the records.
void SessionFigures::add_gauges(const StageRecord& record, PipelineStats& stats) const {
    const TelemetrySnapshot telemetry = record.telemetry.snapshot();
    if (record.id == StageId{1}) {
        const AccountFigures account = account_figures(telemetry);
        if (account.plain_token_us > 0.0) stats.plain_rate = 1e6 / account.plain_token_us;
        stats.speculation_gain = account.gain();
        if (stats.self_draft) stats.self_draft->gauges = telemetry.gauges;
    }
    if (stats.draft_skip && record.id == placement_.process_of(*placement_.draft()).id())
        stats.draft_skip->gauges = telemetry.gauges;
}

void SessionFigures::add_process(const StageRecord& record,
                                 const Counts& grown,
                                 PipelineStats& stats) const {
    const auto of = [&](Counter c) { return grown[static_cast<std::size_t>(c)]; };
    const auto share = [&](std::uint64_t micros) {
        if (stats.seconds <= 0.0) return 0.0;
        return std::min(1.0, static_cast<double>(micros) / 1e6 / stats.seconds);
    };
    for (std::size_t p = 0; p < stats.processes.size(); ++p) {
        const PlacedProcess& process = placement_.processes[p];
        if (process.id() != record.id) continue;
        const double busy = share(of(Counter::JobMicros));
        stats.processes[p].busy += busy;
        // A wait that began before run() counts when it ends.
        stats.processes[p].waiting += std::min(share(of(Counter::WaitMicros)), 1.0 - busy);
        if (record.id != StageId{1}) continue;
        const auto segments = std::count_if(
            process.stages.begin(), process.stages.end(),
            [&](StageId id) { return placement_.stage(id).role == StageRole::Segment; });
        stats.target_forwards += of(counters::kBatches) / static_cast<std::uint64_t>(segments);
    }
}

}  // namespace paceline
