// SupervisionConfig: the table [supervision] of a pipeline's file: what the conductor does about
// stages that die, hang or load for too long, and how long a run may take to end.
//
// Keys, ranges and meanings: fields_of(). Plain values, any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace paceline {

struct Field;

struct SupervisionConfig {
    using Millis = std::chrono::milliseconds;
    std::uint32_t restarts_max = 5;
    Millis restart_period{30'000};
    std::vector<Millis> backoff{Millis{0}, Millis{200}, Millis{1'000}, Millis{5'000}};
    Millis hang_limit{10'000};
    Millis stop_grace{5'000};
    Millis link_limit{30'000};
    Millis start_limit{120'000};
    Millis machine_wait{60'000};
    Millis lease{5'000};
    Millis recovery_limit{0};  // 0: longest_recovery() follows from start_limit
    Millis drain{30'000};
    Millis shutdown_grace{2'000};
    bool checksums = false;

    /// How long an answer waits for its pipeline: longer than a stage may load, or loading a large
    /// model would fail every answer that waits for it.
    [[nodiscard]] Millis longest_recovery() const;
};

[[nodiscard]] std::vector<Field> fields_of(SupervisionConfig& supervision);

}  // namespace paceline
