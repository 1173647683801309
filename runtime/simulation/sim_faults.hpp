// SimFault: a fault of a simulated run. All of them are known before the run
// (SimFaultInjector::add()), so that they can be printed, and reduced by hand to find the cause of
// a failure. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "ipc/base/ids.hpp"
#include "runtime/simulation/sim_random.hpp"

namespace paceline {

enum class SimFaultKind : std::uint8_t {
    Crash,           // the process is gone, whatever it was at
    CrashInHandler,  // ... after `count` more messages, in the midst of a handler
    CrashAtStart,    // its next incarnation dies `lasts` after it was spawned
    Freeze,          // it does nothing for `lasts`
    OutOfMemory,     // the `count`-th allocation from now fails
    Slow,            // its jobs take 100 times as long, for `lasts`
    FalseSuspicion,  // the supervisor suspects it without reason
    Linger,          // it freezes until it is replaced, the kill does not reach it, it wakes up
    StallEdges,      // a random subset of all edges stalls; each heals within `lasts`
};
[[nodiscard]] const char* name_of(SimFaultKind kind);

struct SimFault {
    SimTime at{0};
    SimFaultKind kind = SimFaultKind::Crash;
    StageId process{};
    std::uint32_t count = 0;
    SimTime lasts{0};
};
[[nodiscard]] std::string describe(const SimFault& fault);

}  // namespace paceline
