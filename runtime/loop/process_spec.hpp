// ProcessSpec: one process of the pipeline as the runtime gets it: its actors, where it runs,
// what it is given, and what follows its death.
//
// Wiring, supervisor, node agent and the simulated world take the same value. Plain values; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

/// What follows when a stage dies.
enum class OnDeath : std::uint8_t {
    StopRun,       // the run ends with an error that names it
    RestartAlone,  // its state is not needed: the others continue while it is restarted
    RebuildChain,  // its state is needed: it is restarted and requests are replayed
};

struct ProcessSpec {
    StageId id;                           // of its first actor; 0 is the conductor
    std::vector<StageId> actors = {};     // all of them, `id` first: edges among them need no ring;
                                          // the supervisor takes an empty list as `id` alone
    std::uint32_t spin_micros = 0;        // see choose_spin() in affinity.hpp
    std::string name = {};                // "draft", "segment-1": for messages and log prefixes
    std::vector<int> cores = {};          // empty: not pinned
    std::vector<std::byte> payload = {};  // of its Assign
    OnDeath on_death = OnDeath::StopRun;
    std::uint32_t node = 0;  // its machine: 0 is the conductor's, others as runtime/cluster counts
};

}  // namespace paceline
