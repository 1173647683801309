// ClusterNode: the node agent of a run on several machines: a LocalNode for the stages of this one
// and a RemoteNode for each other, chosen by ProcessSpec::node.
//
// Also keeps the doorbell of the relays awake: its file comes with the first Wire of a stage of
// another machine (wiring.hpp). Threads: one, the supervisor's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "ipc/base/result.hpp"
#include "runtime/cluster/node_slot.hpp"
#include "runtime/parent/node_agent.hpp"

namespace paceline {

/// `io` is the thread of the connections; it and the slots are borrowed and outlive the agent.
/// `names` of the machines, by slot. Errors: those of make_local_node().
[[nodiscard]] Result<std::unique_ptr<NodeAgent>> make_cluster_node(
    boost::asio::io_context& io,
    std::vector<NodeSlot*> slots,
    const std::vector<std::string>& names,
    NodeEvents events,
    bool catch_signals);

}  // namespace paceline
