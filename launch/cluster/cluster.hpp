// Cluster: the machines of a run besides the conductor's, connected.
//
// Made by open_cluster() (meeting.hpp) before the pipeline is planned; outlives its sessions.
// Threads: that of the command; the hub has its own.
#pragma once

#include <memory>
#include <vector>

#include "ipc/remote/node_frames.hpp"
#include "launch/placement/placement.hpp"
#include "runtime/cluster/conductor_hub.hpp"

namespace paceline {

struct Cluster {
    std::unique_ptr<ConductorHub> hub;
    std::vector<remote::Hello> machines;  // by their number, from 1
};

/// As placement knows them; empty for nullptr.
[[nodiscard]] inline std::vector<OtherMachine> others_of(const Cluster* cluster) {
    std::vector<OtherMachine> others;
    if (cluster == nullptr) return others;
    for (const remote::Hello& machine : cluster->machines)
        others.push_back({machine.node, static_cast<int>(machine.cores)});
    return others;
}

}  // namespace paceline
