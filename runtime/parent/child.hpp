// Child: one started stage process as its node agent sees it.
//
// Watches the process descriptor (the process has ended), the control socket (child_control.hpp)
// and the output (child_output.hpp); and asks the kernel whether the process was stopped, and
// without a process descriptor whether it has ended. It reports these as NodeEvents and decides
// nothing.
// Included by local_node.cpp and child.cpp alone, because it includes Asio.
//
// Owns its descriptors; the destructor neither kills nor reaps. One thread, the io_context's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "ipc/base/result.hpp"
#include "ipc/wire/control_socket.hpp"
#include "runtime/parent/child_control.hpp"
#include "runtime/parent/child_output.hpp"
#include "runtime/parent/node_agent.hpp"
#include "runtime/parent/spawn.hpp"

namespace paceline {

class Child {
public:
    /// `events` must outlive it.
    Child(boost::asio::io_context& io,
          Incarnation who,
          std::string name,
          Spawned started,
          const NodeEvents& events);
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    [[nodiscard]] Incarnation who() const { return who_; }
    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] bool gone() const { return gone_; }
    /// -1 if there is none (Spawned::pidfd).
    [[nodiscard]] int pidfd() { return exit_watch_.native_handle(); }
    [[nodiscard]] ChildControl& control() { return control_; }

    /// Sends waiting messages, and reports a child that has read nothing for too long.
    void flush();
    /// SIGKILL to the whole process group; on_exit follows through the io_context.
    void kill();
    /// Reports whether the process was stopped or continued since the last call, or has ended
    /// unnoticed.
    void look_for_changes();

    [[nodiscard]] std::string title() const;
    [[nodiscard]] std::string last_words() const { return output_.last_words(); }

private:
    void watch_exit();
    [[nodiscard]] bool has_ended() const;
    void reap();
    void take(ControlSocket::Received received);
    [[nodiscard]] std::string exit_report(const std::string& end) const;

    Incarnation who_;
    std::string name_;
    const NodeEvents& events_;
    pid_t pid_;
    boost::asio::posix::stream_descriptor exit_watch_;  // owns the pidfd, if there is one
    ChildControl control_;
    ChildOutput output_;
    std::optional<std::uint64_t> oom_kills_;  // of this control group, when it was started
    std::string failure_;                     // what it reported before it ended
    bool killed_ = false;                     // by us
    bool stopped_ = false;                    // by a signal: it cannot read
    bool gone_ = false;
};

}  // namespace paceline
