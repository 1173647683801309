// SimRandom: every choice of a simulation, from one seed. Integers only, so that the same seed
// means the same run on every machine.
#pragma once

#include <bit>
#include <chrono>
#include <cstdint>

#include "ipc/base/check.hpp"

namespace paceline {

/// The simulation's clock. Finer than what actors see (Micros), so that short hops add up.
using SimTime = std::chrono::nanoseconds;

class SimRandom {
public:
    explicit SimRandom(std::uint64_t seed) : state_{seed} {}

    /// splitmix64.
    std::uint64_t next() {
        std::uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
        x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
        x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
        return x ^ (x >> 31U);
    }
    /// 0 .. count - 1.
    std::uint64_t below(std::uint64_t count) {
        PACE_CHECK(count > 0, "a choice among nothing");
        return next() % count;
    }
    bool chance(std::uint32_t percent) { return below(100) < percent; }
    SimTime uniform(SimTime low, SimTime high) {
        if (high <= low) return low;
        return low + SimTime{static_cast<std::int64_t>(
                         below(static_cast<std::uint64_t>((high - low).count()) + 1))};
    }
    /// Every octave between the two is equally likely.
    SimTime log_uniform(SimTime low, SimTime high) {
        if (high <= low || low.count() <= 0) return low;
        const auto ratio = static_cast<std::uint64_t>(high.count() / low.count());
        const SimTime base{low.count() << below(static_cast<std::uint64_t>(std::bit_width(ratio)))};
        const SimTime drawn =
            base +
            SimTime{static_cast<std::int64_t>(below(static_cast<std::uint64_t>(base.count())))};
        return drawn < high ? drawn : high;
    }

private:
    std::uint64_t state_;
};

}  // namespace paceline
