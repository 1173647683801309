// The litmus world: two ends, one or two rings, pools and doorbells, one thread, one seed.
//
// The code under test is the real one, compiled with fault points. What is explored are the
// interleavings of whole steps, each seen by the other end at once; whether the memory orders are
// strong enough for real cores is tested by ThreadSanitizer and by the two-process tests.
#pragma once

#include <cstdint>
#include <string>

#include "ipc/base/faults.hpp"

namespace paceline::test {

struct Verdict {
    std::string failure;  // empty: every oracle held
    std::uint64_t hash = 0;
    std::uint64_t messages = 0;  // delivered
    std::uint64_t stale = 0;     // frames of an old epoch that were dropped
    std::uint64_t sleeps = 0;
    std::uint64_t deaths = 0;
};

/// One run. The same seed and bug give the same verdict, hash included.
[[nodiscard]] Verdict run_litmus(std::uint64_t seed, PlantedBug bug = PlantedBug::None);

/// The scenario of a seed in words.
[[nodiscard]] std::string describe_litmus(std::uint64_t seed);

}  // namespace paceline::test
