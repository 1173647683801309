// Core shares: assigns a machine's cores to the processes of a pipeline.
//
// Processes that compute at the same time are in different groups and get separate cores, if
// there are enough; processes of one group compute one after the other and share cores. Cores that
// the configuration names are never changed. If there are too few cores for all groups, all
// processes share all cores: that is better than a process that waits for one busy core while
// another one is idle.
//
// Pure functions of values.
#pragma once

#include <cstddef>
#include <vector>

namespace paceline {

/// The requirements of one process.
struct CoreDemand {
    static constexpr int kNoGroup = -1;

    int group = kNoGroup;         // processes that share its cores; kNoGroup: computes very little
    bool modest = false;          // one core is enough for each process of its group (a draft)
    int threads = 0;              // as configured; 0: one per core that it gets
    std::size_t machine = 0;      // whose cores it gets
    std::vector<int> named = {};  // cores that the configuration names; empty: it may choose
};

/// The cores of each process, in the order of `usable`; never empty if `usable` is not. A group
/// gets as many as its configured threads, at least one; the remaining cores are divided evenly
/// among groups that are not modest, the first ones first. A process with kNoGroup gets the cores
/// that no other computes on, or all.
[[nodiscard]] std::vector<std::vector<int>> share_cores(const std::vector<CoreDemand>& demands,
                                                        const std::vector<int>& usable);

struct CoreShares {
    std::vector<std::vector<int>> cores;
    std::vector<bool> shared;  // whether another process may run on any of them
};
/// The same for processes of several machines, each with the cores of its own.
[[nodiscard]] CoreShares share_cores_by_machine(const std::vector<CoreDemand>& demands,
                                                const std::vector<std::vector<int>>& cores_of);

}  // namespace paceline
