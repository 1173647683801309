// LocalNode: the node agent of the conductor's own machine.
//
// The stages are children of this process (spawn.hpp, child.hpp). Boost.Asio waits for all of
// them at once. Create, use and destroy it on one thread, which forks the children.
#pragma once

#include <memory>

#include "ipc/base/result.hpp"
#include "runtime/parent/node_agent.hpp"

namespace paceline {

/// Also makes this process the reaper of processes that its stages leave behind, and raises its
/// limit of open descriptors, both as far as permitted. Errc::System if it cannot watch children
/// and signals.
[[nodiscard]] Result<std::unique_ptr<NodeAgent>> make_local_node(NodeEvents events,
                                                                 bool catch_signals);

}  // namespace paceline
