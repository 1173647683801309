// RandomTiming: the times of a simulated world, drawn from its seed over orders of magnitude.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "runtime/simulation/sim_timing.hpp"

namespace paceline::testing {

struct RandomTimingLimits {
    SimTime hop_min{1'000};
    SimTime hop_max{10'000'000};
    /// Real loops handle a control message before the frames that were sent because of it. Here it
    /// may come after them, but not after as many as no stage would hold.
    SimTime control_max{1'000'000};
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
    [[nodiscard]] SimTime control_hop(SimRandom& random) override;
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

}  // namespace paceline::testing
