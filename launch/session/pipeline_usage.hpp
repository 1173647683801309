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
#include "runtime/observe/stage_telemetry.hpp"
#include "runtime/parent/supervisor.hpp"

namespace paceline {

/// What the account of costs and gains has measured since the first segment was started
/// (actors/account/guard_turns.hpp).
struct AccountFigures {
    double plain_us = 0.0;          // what the tokens of all turns take without speculation,
    double took_us = 0.0;           // and what they took
    double plain_token_us = 0.0;    // a token of a request without speculation; 0: not known
    std::uint32_t incarnation = 0;  // of the first segment whose sums these are

    /// Times plain decoding; 0: not known.
    [[nodiscard]] double gain() const { return took_us > 0.0 ? plain_us / took_us : 0.0; }
};
[[nodiscard]] AccountFigures account_figures(const TelemetrySnapshot& telemetry);

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
    AccountFigures account = {};                         // of the newest first segment

    [[nodiscard]] std::uint64_t counter(Counter c) const {
        return counters[static_cast<std::size_t>(c)];
    }
};

[[nodiscard]] PipelineUsage usage_of(std::span<const StageRecord> records,
                                     const Placement& placement,
                                     std::int32_t text_slots);

}  // namespace paceline
