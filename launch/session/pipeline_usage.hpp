// PipelineUsage: what the processes of a pipeline did since it was opened, and the memory in use,
// for the metrics of a server.
//
// Read from the telemetry blocks, those of dead incarnations included as far as they are kept: a
// sum may fall after some dozens of deaths, and who shows it as a counter keeps the highest.
// Plain values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/placement/placement.hpp"
#include "runtime/observe/counters.hpp"
#include "runtime/parent/supervisor.hpp"

namespace paceline {

struct PipelineUsage {
    struct Process {
        std::string name;
        double busy_s = 0.0;         // in jobs
        std::uint64_t restarts = 0;  // incarnations after the first
    };
    std::vector<Process> processes = {};
    std::int64_t kv_pages_used = 0;  // of the target, by running answers
    std::int64_t kv_pages = 0;
    std::array<std::uint64_t, kCounters> counters = {};  // summed over all processes

    [[nodiscard]] std::uint64_t counter(Counter c) const {
        return counters[static_cast<std::size_t>(c)];
    }
};

[[nodiscard]] PipelineUsage usage_of(std::span<const StageRecord> records,
                                     const Placement& placement,
                                     std::int32_t text_slots);

}  // namespace paceline
