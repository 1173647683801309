// NodeAgent: starts, kills and reaps the stages of one machine, and passes their messages.
//
// The supervisor decides what to do with stages (recovery.hpp) and calls an agent, which executes
// it and reports events. LocalNode (local_node.hpp) is the agent of the conductor's machine;
// runtime/cluster has those of other machines, reached over a connection, which also replace the
// channels, because memory files exist on one machine only.
//
// An incarnation is identified by (stage process, epoch). Events of a replaced incarnation still
// arrive and are recognised by their epoch. Threads: one, the supervisor's.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/transport/doorbell.hpp"
#include "ipc/wire/control_socket.hpp"
#include "runtime/loop/process_spec.hpp"

namespace paceline {

struct Incarnation {
    StageId id;
    Epoch epoch;
    friend auto operator<=>(const Incarnation&, const Incarnation&) = default;
};

struct NodeEvents {
    /// A control message of a stage.
    std::function<void(Incarnation, ControlSocket::Received)> on_message;
    /// Its control socket is closed, is not read or has an invalid message; the process may still
    /// run.
    std::function<void(Incarnation, const Error&)> on_silence;
    /// Some of the messages that send() had queued were sent. May be empty.
    std::function<void(Incarnation)> on_flushed;
    /// It was started on any core, because sched_setaffinity was denied with this errno. May be
    /// empty.
    std::function<void(Incarnation, int error)> on_unpinned;
    /// Its process was stopped (SIGSTOP, SIGTSTP) or continued.
    std::function<void(Incarnation, bool stopped)> on_stopped;
    /// It has ended and is reaped, its memory is free. `how` is its whole exit report: name, exit
    /// status or signal, whether the kernel's out-of-memory killer was at work, its last lines.
    std::function<void(Incarnation, bool well, const std::string& how)> on_exit;
    /// Its machine cannot be relied on any more: it has ended there, or will have when the machine
    /// is back. `why` names the machine. May be empty.
    std::function<void(Incarnation, const std::string& why)> on_machine_lost;
    /// A machine for this stage is there (again): the next incarnation may be started. May be
    /// empty.
    std::function<void(StageId)> on_machine_back;
    /// It let a deadline pass, where the agent judges them. May be empty.
    std::function<void(Incarnation, const std::string& complaint)> on_hung;
    /// A line of its stdout or stderr.
    std::function<void(Incarnation, std::string_view line)> on_line;
    /// SIGINT or SIGTERM to this process, if the agent was asked to catch them.
    std::function<void(int signal)> on_signal;
};

class NodeAgent {
public:
    using Deadline = std::chrono::steady_clock::time_point;
    /// One more doorbell of the same sleeper, for a thread of its own.
    using MakeBell = std::function<Result<Doorbell>()>;

    NodeAgent() = default;
    NodeAgent(const NodeAgent&) = delete;
    NodeAgent& operator=(const NodeAgent&) = delete;
    virtual ~NodeAgent() = default;  // kills and reaps whatever is left

    /// `process` is that of `who`. An empty `command`: this program again, as a stage.
    [[nodiscard]] virtual Status start(Incarnation who,
                                       const ProcessSpec& process,
                                       const std::vector<std::string>& command) = 0;
    /// Never waits: what its socket has no room for is sent by later polls, in order. A stage that
    /// reads nothing of it for `limit`, not counting the time in which its process is stopped,
    /// falls silent (on_silence), and so does one for which too much waits already. Errc::PeerGone
    /// if the incarnation is gone or fell silent; on_silence was called by then.
    [[nodiscard]] virtual Status send(Incarnation who,
                                      const control::Message& message,
                                      std::span<const int> files,
                                      std::chrono::milliseconds limit,
                                      Envelope envelope) = 0;
    /// SIGKILL to the process and what it forked; on_exit follows.
    virtual void kill(Incarnation who) = 0;
    /// Calls the events that are due, without waiting. If a stage sends faster than it is read,
    /// only some of its messages are delivered per call.
    virtual void poll() = 0;
    /// The same, but waits for something to happen until the deadline.
    virtual void wait(Deadline deadline) = 0;
    /// From now on another thread sleeps on these doorbells: announce() there when poll() has news.
    [[nodiscard]] virtual Status wake_with(const MakeBell& bells) = 0;
    /// "stage 'segment-1' (process 42)", for messages.
    [[nodiscard]] virtual std::string title(Incarnation who) const = 0;
    /// "; its last lines: ..." or nothing.
    [[nodiscard]] virtual std::string last_words(Incarnation who) const = 0;
    /// 0 if it is gone, or a process of another machine.
    [[nodiscard]] virtual pid_t pid(Incarnation who) const = 0;
    /// Whether the agent itself compares the deadlines of a stage with the clock of its machine,
    /// and reports on_hung.
    [[nodiscard]] virtual bool judges_deadlines(StageId /*stage*/) const { return false; }
    /// Asks stages of other machines for their telemetry as it is now, which comes as copies.
    virtual void ask_figures() {}
    /// Whether what was asked for last is here; true too if its machine cannot be reached.
    [[nodiscard]] virtual bool has_figures() const { return true; }
};

}  // namespace paceline
