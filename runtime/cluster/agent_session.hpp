// AgentSession: one connection of an agent with a conductor, from the first Hello to its end.
//
//   [Greeting] --- the conductor's Hello ---> [Serving] --- end of connection or lease,
//       |                                         |         Refused, Shutdown
//       +----------------- Refused ---------------+---------------------------------> [Over]
//
// While it serves it asks for its lease, moves frames, passes control messages, and starts, watches
// and kills stages. When it is over, however that came, its stages are killed and reaped before the
// owner is told: a conductor that finds this agent again finds no stage of before.
// Threads: one, that of the io_context, which forks the stages.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "ipc/base/result.hpp"
#include "ipc/remote/secure_connection.hpp"
#include "runtime/cluster/agent_stages.hpp"
#include "runtime/cluster/lease.hpp"

namespace paceline {

/// How a session ended.
struct SessionEnd {
    enum class Cause : std::uint8_t { Shutdown, Refused, Lost, LeaseOver, Failed };
    Cause cause = Cause::Lost;
    std::string text;
    bool passes = false;  // of Refused: the reason may end with another agent's lease
};

struct AgentPlan {
    remote::Hello hello;  // of this machine
    CheckAssignment check_assignment;
    std::vector<int> cores;  // that stages may use, in the order in which they take them
    LeaseRules lease;
    /// A sentence for the log. May be empty.
    std::function<void(const std::string& sentence)> say;
};

class AgentSession {
public:
    virtual ~AgentSession() = default;  // ends at once

    /// On `connection`, which proved the key. Says Hello. `over` is called once, not from within;
    /// `greeted` when the conductor has said Hello: the second connection may be made then.
    [[nodiscard]] static std::unique_ptr<AgentSession> start(
        boost::asio::io_context& io,
        remote::ConnectionPtr connection,
        const AgentPlan& plan,
        std::function<void()> greeted,
        std::function<void(const SessionEnd&)> over);
    virtual void add_bulk(remote::ConnectionPtr connection) = 0;
    /// It cannot be had: the session ends when something is to come on it.
    virtual void no_bulk(const Error& error) = 0;
    /// Ends in order: the conductor learns `reason`.
    virtual void leave(const std::string& reason) = 0;
};

}  // namespace paceline
