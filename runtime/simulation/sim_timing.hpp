// SimTiming: how long things take in a simulated world.
//
// RandomTiming draws everything from the seed, over orders of magnitude, for fault tests;
// TableTiming (table_timing.hpp) takes it from measured costs, for projections.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

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
    /// A data message from send() until it can be handled. Asked once per message; `rows` are those
    /// of the tensor that it announces, 1 if it announces none.
    [[nodiscard]] virtual SimTime hop(const EdgeSpec& edge, std::uint32_t rows, SimRandom&) = 0;
    /// A control message from the conductor on its way.
    [[nodiscard]] virtual SimTime cold(SimRandom&) = 0;
    /// News of a stage on its way to the conductor's process, or of room in a channel to a stage.
    [[nodiscard]] virtual SimTime news(SimRandom&) = 0;
    /// What a process has measured of one row through its layers before it is at work; 0: nothing.
    [[nodiscard]] virtual SimTime timed_row(StageId /*process*/) { return SimTime{0}; }
    /// From Spawn until an incarnation greets.
    [[nodiscard]] virtual SimTime load(StageId process, SimRandom&) = 0;
    /// From Kill until the process has ended.
    [[nodiscard]] virtual SimTime kill(SimRandom&) = 0;
};

struct RandomTimingLimits {
    SimTime hop_min{1'000};
    SimTime hop_max{10'000'000};
    /// Real loops handle a control message before the frames that were sent because of it. Here it
    /// may come after them, but not after as many as no stage would hold.
    SimTime cold_max{1'000'000};
    SimTime job_min{20'000};
    SimTime job_max{5'000'000};
    SimTime job_row{0};      // each of its rows takes so long besides
    bool row_timed = false;  // and that is known beforehand
    SimTime load_min{1'000'000};
    SimTime load_max{3'000'000'000};
    SimTime kill_min{10'000};
    SimTime kill_max{500'000'000};
};

/// Every edge and every process has a typical time of its own, log-uniform; each message or job
/// takes between half of it and three times as long.
class RandomTiming final : public SimTiming {
public:
    explicit RandomTiming(const RandomTimingLimits& limits) : limits_{limits} {}

    [[nodiscard]] SimTime job(StageId process, const JobLabel& label, SimRandom& random) override;
    [[nodiscard]] SimTime hop(const EdgeSpec& edge, std::uint32_t rows, SimRandom& random) override;
    [[nodiscard]] SimTime cold(SimRandom& random) override;
    [[nodiscard]] SimTime news(SimRandom& random) override;
    [[nodiscard]] SimTime load(StageId process, SimRandom& random) override;
    [[nodiscard]] SimTime timed_row(StageId /*process*/) override {
        return limits_.row_timed ? limits_.job_row : SimTime{0};
    }
    [[nodiscard]] SimTime kill(SimRandom& random) override;

private:
    RandomTimingLimits limits_;
    std::map<StageId, SimTime> jobs_;
    std::map<std::pair<StageId, StageId>, SimTime> hops_;
};

}  // namespace paceline
