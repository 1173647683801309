// ConductorHub: the conductor's connections with the agents of other machines.
//
//   open() --> agents connect and say Hello --> await_nodes() --> make_node()
//
// Each machine that the run wants gets a slot (node_slot.hpp), in the order in which they came or,
// where the plan names its nodes, by name. A machine that is not wanted (more of them than slots)
// waits without stages; it takes the place of one whose lease has ended. A machine that returns
// under its name gets its own place. Refused are a second agent of a machine, a second machine with
// the name of one that is there, and a connection that leads back to this process. The agents of
// the first two may try again: the one that is there may have ended without a sign, and counts as
// there until its lease ends (hub_guest.hpp).
//
// Has a thread for all connections and relays, and one for the relays' doorbell. Made and destroyed
// on the thread that starts the run; outlives the node agents that it makes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/remote/node_frames.hpp"
#include "ipc/remote/node_key.hpp"
#include "ipc/remote/node_place.hpp"
#include "runtime/cluster/lease.hpp"
#include "runtime/parent/node_agent.hpp"

namespace paceline {

struct HubPlan {
    remote::NodePlace listen;
    remote::Hello hello;                  // of the conductor
    std::size_t nodes = 0;                // other machines that the run wants
    std::vector<std::string> names = {};  // of their slots, in order; empty: as they come
    LeaseRules lease;
    std::chrono::milliseconds stop_grace{5'000};  // a stopped stage is waited for this long
    /// Sentences for the log, from the hub's thread; `is_news`: a machine is lost or back. May be
    /// empty.
    std::function<void(const std::string& sentence, bool is_news)> say = {};
};

class ConductorHub {
public:
    [[nodiscard]] static Result<std::unique_ptr<ConductorHub>> open(const remote::NodeKey& key,
                                                                    HubPlan plan);
    ConductorHub(const ConductorHub&) = delete;
    ConductorHub& operator=(const ConductorHub&) = delete;
    virtual ~ConductorHub() = default;  // says goodbye

    /// missing(), when it has changed.
    using OnMissing = std::function<void(const std::string& missing)>;
    /// What the machines said, by slot, once all are there. `told` may be empty; it is called on
    /// this thread. Errc::PeerGone names those that are missing, and the last refusal.
    [[nodiscard]] virtual Result<std::vector<remote::Hello>> await_nodes(
        std::chrono::milliseconds limit, const OnMissing& told = {}) = 0;
    /// Which machines are not connected, for people: "machine 'b' at a:47600"; empty: none. From
    /// any thread.
    [[nodiscard]] virtual std::string missing() const = 0;
    /// Ends the connections with agents: they connect anew, without anything of the stages before.
    /// Between two node agents.
    virtual void renew() = 0;
    /// The agent of a run's stages: those with ProcessSpec::node 0 run here, others on the machine
    /// of slot node - 1. One at a time, and renew() before a second one. Errors: those of
    /// make_local_node().
    [[nodiscard]] virtual Result<std::unique_ptr<NodeAgent>> make_node(NodeEvents events,
                                                                       bool catch_signals) = 0;

protected:
    ConductorHub() = default;
};

}  // namespace paceline
