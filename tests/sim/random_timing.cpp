#include "tests/sim/random_timing.hpp"

namespace paceline::testing {
namespace {

SimTime around(SimTime typical, SimRandom& random) {
    return random.uniform(typical / 2, typical * 3);
}

}  // namespace

SimTime RandomTiming::job(StageId process, const JobLabel& label, SimRandom& random) {
    const auto [typical, first] = jobs_.try_emplace(process);
    if (first) typical->second = random.log_uniform(limits_.job_min, limits_.job_max);
    return around(typical->second, random) + label.rows * limits_.job_row;
}

SimTime RandomTiming::hop(const EdgeSpec& edge, std::uint32_t /*rows*/, SimRandom& random) {
    const auto [typical, first] = hops_.try_emplace({edge.from, edge.to});
    if (first) typical->second = random.log_uniform(limits_.hop_min, limits_.hop_max);
    return around(typical->second, random);
}

SimTime RandomTiming::control_hop(SimRandom& random) {
    return random.log_uniform(limits_.hop_min, limits_.control_max);
}

SimTime RandomTiming::news(SimRandom& random) {
    return random.log_uniform(limits_.hop_min, limits_.hop_max);
}

SimTime RandomTiming::load(StageId /*process*/, SimRandom& random) {
    return random.log_uniform(limits_.load_min, limits_.load_max);
}

SimTime RandomTiming::kill(SimRandom& random) {
    return random.log_uniform(limits_.kill_min, limits_.kill_max);
}

}  // namespace paceline::testing
