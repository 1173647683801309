#include "launch/session/pipeline_usage.hpp"

#include <algorithm>

#include "actors/protocol/counters.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

AccountFigures account_figures(const TelemetrySnapshot& telemetry) {
    const auto micros = [&](Gauge gauge) { return static_cast<double>(telemetry.gauge(gauge)); };
    return {.plain_us = micros(gauges::kTurnsPlainMicros),
            .took_us = micros(gauges::kTurnsMicros),
            .plain_token_us = micros(gauges::kPlainTokenMicros)};
}

PipelineUsage usage_of(std::span<const StageRecord> records,
                       const Placement& placement,
                       std::int32_t text_slots) {
    PipelineUsage usage;
    usage.kv_pages = text_slots / kKvPageSlots;
    for (const PlacedProcess& process : placement.processes)
        usage.processes.push_back({.name = process.name});
    for (const StageRecord& record : records) {
        const TelemetrySnapshot telemetry = record.telemetry.snapshot();
        for (std::size_t i = 0; i < kCounters; ++i) usage.counters[i] += telemetry.counters[i];
        // The newest incarnation is the last one.
        if (record.id == StageId{1}) {
            usage.kv_pages_used = static_cast<std::int64_t>(telemetry.gauge(gauges::kKvPages));
            usage.account = account_figures(telemetry);
            usage.account.incarnation = record.epoch.value;
        }
        for (std::size_t p = 0; p < usage.processes.size(); ++p) {
            if (placement.processes[p].id() != record.id) continue;
            PipelineUsage::Process& process = usage.processes[p];
            process.busy_s += static_cast<double>(telemetry.counter(Counter::JobMicros)) / 1e6;
            process.restarts = std::max<std::uint64_t>(process.restarts, record.epoch.value - 1);
        }
    }
    return usage;
}

}  // namespace paceline
