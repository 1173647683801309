// spawn_stage: starts one stage as a process of its own.
//
// A stage is this program again (/proc/self/exe) with a hidden subcommand. Between fork and exec
// the child: asks to die with its parent and re-checks that the parent is still there, becomes
// the leader of its own process group, takes default signals, pins itself to its cores (so that
// everything it ever allocates is local to them), reads /dev/null, writes stdout and stderr into
// a pipe that its parent keeps, and closes every other descriptor.
//
// A step that a kernel or a container's profile denies and that a stage can do without is left out:
// a stage that cannot be pinned runs unpinned (Spawned::pin_error), one without a parent-death
// signal ends when its control socket closes.
//
// Must be called from the thread that lives as long as the children may: the parent-death signal
// belongs to the thread that forked.
#pragma once

#include <chrono>
#include <string>
#include <sys/types.h>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "ipc/wire/control_socket.hpp"
#include "runtime/loop/process_spec.hpp"

namespace paceline {

inline constexpr std::chrono::milliseconds kExecLimit{10'000};

/// A started child. Not reaped by the destructor: the supervisor does that.
struct Spawned {
    pid_t pid = -1;
    OwnedFd pidfd;          // readable once the child has exited; empty where pidfd_open is denied
    OwnedFd output;         // what it writes to stdout and stderr; non-blocking
    ControlSocket control;  // the parent's end
    OwnedFd control_watch;  // a second descriptor of the same end, for whoever waits for messages
    int pin_error = 0;      // errno of sched_setaffinity: the child runs on any core; 0: on its own
};

/// Of `process` its name, cores and on_death count. `command` is argv, with "--control-fd N"
/// appended for the child's control descriptor; empty: /proc/self/exe stage. When memory runs out
/// the kernel takes stages before this process, first those that restart alone.
/// Errc::BadArgument for a core that does not exist or is not allowed here; Errc::System names
/// the call that failed, also in the child before exec. A child that has not reached exec within
/// `exec_limit` is killed, which is Errc::System too.
[[nodiscard]] Result<Spawned> spawn_stage(const ProcessSpec& process,
                                          const std::vector<std::string>& command,
                                          std::chrono::milliseconds exec_limit = kExecLimit);

/// "exited with code 3", "was killed by signal 9 (Killed)". The arguments as from waitid(2).
[[nodiscard]] std::string describe_exit(int code, int status);

}  // namespace paceline
