// Core shares: which of a machine's cores each process of a pipeline gets.
//
// Processes that compute at the same time are in different groups and get cores of their own, if
// there are enough; processes of one group take turns and share theirs. Cores that the configuration
// names are never changed. Where there are fewer cores than are needed apart, all share all: better
// than a process that waits for one busy core while another one is idle.
//
// Pure functions of values.
#pragma once

#include <vector>

namespace paceline {

/// What one process wants.
struct CoreWish {
    static constexpr int kNoGroup = -1;

    int group = kNoGroup;         // processes that share its cores; kNoGroup: it hardly computes
    bool modest = false;          // of all in its group: one core each will do (a draft)
    int threads = 0;              // that it is told to have; 0: as many as it gets cores
    std::vector<int> named = {};  // cores that the configuration names; empty: it may choose
};

/// The cores of each process, in the order of `usable`; never empty if `usable` is not. A group gets
/// as many as it has threads named, at least one, and what is left goes evenly to the groups that
/// are not modest, the first ones first. A process that hardly computes gets the cores that no other computes on, or all.
[[nodiscard]] std::vector<std::vector<int>> share_cores(const std::vector<CoreWish>& wishes,
                                                        const std::vector<int>& usable);

}  // namespace paceline
