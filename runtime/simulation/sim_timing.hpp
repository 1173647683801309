// SimTiming: how long things take in a simulated world.
//
// TableTiming (table_timing.hpp) takes it from measured costs, for projections; the fault tests
// draw it from the seed (tests/sim/random_timing.hpp).
#pragma once

#include <cstdint>

#include "ipc/base/ids.hpp"
#include "runtime/loop/wiring.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline {

struct SimTiming {
    SimTiming() = default;
    SimTiming(const SimTiming&) = delete;
    SimTiming& operator=(const SimTiming&) = delete;
    virtual ~SimTiming() = default;

    /// A job of a process.
    [[nodiscard]] virtual SimTime job(StageId process, const JobLabel& label, SimRandom&) = 0;
    /// How many times as long it takes beside the jobs of so many other processes on its device,
    /// if the device had room for all of them; >= 1.
    [[nodiscard]] virtual double contention(StageId /*process*/,
                                            const JobLabel& /*label*/,
                                            std::uint32_t /*others*/) {
        return 1.0;
    }
    /// A data message from send() until it can be handled. Asked once per message; `rows` are those
    /// of the tensor that it announces, 1 if it announces none.
    [[nodiscard]] virtual SimTime hop(const EdgeSpec& edge, std::uint32_t rows, SimRandom&) = 0;
    /// A control message from the conductor on its way.
    [[nodiscard]] virtual SimTime control_hop(SimRandom&) = 0;
    /// News of a stage on its way to the conductor's process, or of room in a channel to a stage.
    [[nodiscard]] virtual SimTime news(SimRandom&) = 0;
    /// What a process has measured of one row through its layers before it is at work; 0: nothing.
    [[nodiscard]] virtual SimTime timed_row(StageId /*process*/) { return SimTime{0}; }
    /// From Spawn until an incarnation greets.
    [[nodiscard]] virtual SimTime load(StageId process, SimRandom&) = 0;
    /// From Kill until the process has ended.
    [[nodiscard]] virtual SimTime kill(SimRandom&) = 0;
};

}  // namespace paceline
