// SimTelemetry: what one simulated incarnation shows of itself, as a stage process does in its
// telemetry block. Still there when the incarnation has ended. One thread.
#pragma once

#include <vector>

#include "runtime/observe/stage_telemetry.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline {

struct SimTelemetry {
    /// Of the runtime's own counters only Jobs and FramesStale; activity, deadline and job records
    /// only where jobs have limits.
    TelemetrySnapshot block;
    std::vector<TraceEvent> trace;
    SimTime busy{0};  // in jobs, which may take parts of a microsecond
};

}  // namespace paceline
