// Core shares: which of a machine's cores each process of a pipeline gets.
//
// Processes that compute at the same time are in different lanes and get cores of their own, if
// there are enough; processes of one lane take turns and share theirs. Cores that the configuration
// names are never changed. Where there are fewer cores than are needed apart, all share all: better
// than a process that waits for one busy core while another one is idle.
//
// Pure functions of values.
#pragma once

#include <vector>

namespace paceline {

/// What one process wants.
struct CoreWish {
    static constexpr int kNoLane = -1;

    int lane = kNoLane;           // who takes turns with it; kNoLane: it hardly computes
    bool modest = false;          // of all in its lane: one core each will do (a draft)
    int threads = 0;              // that it is told to have; 0: as many as it gets cores
    std::vector<int> named = {};  // cores that the configuration names; empty: it may choose
};

/// The cores of each process, in the order of `usable`; never empty if `usable` is not. A lane gets
/// as many as it has threads named, at least one, and what is left goes evenly to the lanes that
/// are not modest, the first ones first. Who hardly computes gets what nobody computes on, or all.
[[nodiscard]] std::vector<std::vector<int>> share_cores(const std::vector<CoreWish>& wishes,
                                                        const std::vector<int>& usable);

}  // namespace paceline
