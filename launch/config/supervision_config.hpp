// SupervisionConfig: the table [supervision] of a pipeline's file: what the conductor does about
// stages that die, hang or load for too long, and how long a run may take to end.
//
//     restarts_max       5     more than these within restart_period_s: the stage is given up
//     restart_period_s   30
//     backoff_ms         [0, 200, 1000, 5000]    before the first, second, ... restart
//     hang_limit_s       10    beyond the time that a stage itself gave an operation; 0: no limit
//     stop_grace_s       5     how long a stopped stage (SIGSTOP) is waited for
//     start_limit_s      120   from the start of a stage until it has loaded
//     recovery_limit_s   60    how long an answer waits for its pipeline to be whole again
//     drain_s            30    how long the answer may go on after SIGTERM
//     shutdown_grace_s   2     until stages that do not end are killed
//     checksums          false    of whole messages in the rings, not only of their headers
//
// All keys are optional; the values above are the defaults. Plain values, any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {

struct SupervisionConfig {
    using Millis = std::chrono::milliseconds;
    std::uint32_t restarts_max = 5;
    Millis restart_period{30'000};
    std::vector<Millis> backoff{Millis{0}, Millis{200}, Millis{1'000}, Millis{5'000}};
    Millis hang_limit{10'000};
    Millis stop_grace{5'000};
    Millis start_limit{120'000};
    Millis recovery_limit{60'000};
    Millis drain{30'000};
    Millis shutdown_grace{2'000};
    bool checksums = false;
};

/// Errors: BadArgument, naming file, line, key, value and range.
[[nodiscard]] Result<SupervisionConfig> read_supervision(const TomlTable& table);

}  // namespace paceline
