// spawn_stage: starts one stage as a process of its own.
//
// A stage is this program again (/proc/self/exe) with a hidden subcommand. Between fork and exec
// the child: asks to die with its parent and re-checks that the parent is still there, becomes
// the leader of its own process group, takes default signals, pins itself to its cores (so that
// everything it ever allocates is local to them), reads /dev/null, writes stdout and stderr into
// a pipe that its parent keeps, and closes every other descriptor.
//
// Must be called from the thread that lives as long as the children may: the parent-death signal
// belongs to the thread that forked.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "ipc/wire/control_socket.hpp"

namespace paceline {

struct SpawnSpec {
    std::string name;                  // for messages
    std::vector<std::string> command;  // argv; empty: /proc/self/exe stage. The child's control
                                       // descriptor is appended as "--control-fd N".
    std::vector<int> cores;            // empty: the parent's
    std::uint32_t death_penalty = 0;   // oom_score_adj: when memory runs out the highest dies first
    std::chrono::milliseconds exec_limit{10'000};  // until the child runs the command
};

/// A started child. Not reaped by the destructor: the supervisor does that.
struct Spawned {
    pid_t pid = -1;
    OwnedFd pidfd;          // readable once the child has exited
    OwnedFd output;         // what it writes to stdout and stderr; non-blocking
    ControlSocket control;  // the parent's end
};

/// Errc::BadArgument for a core that does not exist or is not allowed here; Errc::System names
/// the call that failed, also in the child before exec. A child that has not reached exec within the limit
/// is killed, which is Errc::System too.
[[nodiscard]] Result<Spawned> spawn_stage(const SpawnSpec& spec);

/// "exited with code 3", "was killed by signal 9 (Killed)". The arguments as from waitid(2).
[[nodiscard]] std::string describe_exit(int code, int status);

}  // namespace paceline
