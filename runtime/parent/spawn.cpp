#include "runtime/parent/spawn.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <optional>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "ipc/base/denied_call.hpp"
#include "runtime/loop/stage_process.hpp"
#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

/// What the child tells its parent before exec: that it is not pinned, or that it cannot become the
/// stage.
struct ChildNote {
    int error;
    int step;
};
constexpr std::array kSteps = {"sched_setaffinity", "dup2", "fcntl", "execv"};
enum Step : int { Affinity, Streams, Inherit, Exec };

constexpr const char* kOwnProgram = "/proc/self/exe";
constexpr int kDescriptorsMax = 65'536;  // that are marked one by one where close_range is denied

/// Everything the child needs, made before fork: it may only make system calls after it.
struct Plan {
    const char* path;
    const char* path_otherwise;  // if the first one cannot be executed; may be nullptr
    std::vector<char*> argv;
    std::vector<std::uint64_t> core_mask;  // as sched_setaffinity reads it; empty: not pinned
    pid_t parent;
    int null_in;
    int output;
    int control;
    int notes;
    std::string death_penalty;  // as /proc/self/oom_score_adj takes it
};

bool note(const Plan& plan, Step step) {
    const ChildNote sent{errno, step};
    return ::write(plan.notes, &sent, sizeof sent) == sizeof sent;
}

[[noreturn]] void give_up(const Plan& plan, Step step) {
    // If even the note fails the parent sees the exit code.
    ::_exit(note(plan, step) ? 127 : 126);
}

/// Every descriptor but the standard ones closes at exec. Without close_range (before Linux 5.11,
/// and in old container profiles) each is marked: those of this program are marked already, only
/// those of the shell that started it and of libraries are not.
void close_at_exec() {
    if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
    for (int fd = 3; fd < kDescriptorsMax; ++fd) (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/// The child between fork and exec.
[[noreturn]] void become_stage(const Plan& plan) {
    // Not needed to run: without the signal the stage ends when its control socket closes; without
    // a group its parent kills it alone.
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(125);  // died before the signal was armed
    (void)::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)::setpgid(0, 0);

    const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    // Where it cannot be set the kernel chooses by size: worse, but no reason not to start.
    if (score >= 0) (void)!::write(score, plan.death_penalty.data(), plan.death_penalty.size());

    for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);

    if (!plan.core_mask.empty() &&
        ::sched_setaffinity(0, plan.core_mask.size() * sizeof(std::uint64_t),
                            reinterpret_cast<const cpu_set_t*>(plan.core_mask.data())) != 0) {
        (void)note(plan, Affinity);
    }
    if (::dup2(plan.null_in, 0) < 0 || ::dup2(plan.output, 1) < 0 || ::dup2(plan.output, 2) < 0) {
        give_up(plan, Streams);
    }
    close_at_exec();
    if (::fcntl(plan.control, F_SETFD, 0) != 0) give_up(plan, Inherit);
    ::execv(plan.path, plan.argv.data());
    if (plan.path_otherwise != nullptr) ::execv(plan.path_otherwise, plan.argv.data());
    give_up(plan, Exec);
}

Error failed(const std::string& name, const char* call, int error) {
    return {Errc::System,
            "cannot start stage '" + name + "': " + call + " failed: " + std::strerror(error)};
}

struct Pipe {
    OwnedFd read;
    OwnedFd write;
};
Result<Pipe> make_pipe(const std::string& name) {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed(name, "pipe2", errno);
    return Pipe{OwnedFd{ends[0]}, OwnedFd{ends[1]}};
}

std::vector<std::uint64_t> mask_of(std::span<const int> cores) {
    std::vector<std::uint64_t> mask;
    for (const int core : cores) {
        const auto word = static_cast<std::size_t>(core) / 64;
        if (mask.size() <= word) mask.resize(word + 1, 0);
        mask[word] |= std::uint64_t{1} << (static_cast<unsigned>(core) % 64U);
    }
    return mask;
}

/// The child's next note; nothing once it has become the stage (its end of the pipe closes at
/// exec). A file system that does not answer, or another thread's fork that keeps a copy of the
/// pipe, must not block the parent for ever.
Result<std::optional<ChildNote>> next_note(const std::string& name,
                                           int fd,
                                           std::chrono::steady_clock::time_point deadline,
                                           std::chrono::milliseconds exec_limit) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    for (int ready = 0; ready <= 0;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) {
            return Error{
                Errc::System,
                fmt::format("cannot start stage '{}': its process did not begin to run the "
                            "command within {} ms",
                            name, exec_limit.count())};
        }
        ready = ::poll(&entry, 1, static_cast<int>(left.count()));
        if (ready < 0 && errno != EINTR) return failed(name, "poll", errno);
    }
    ChildNote note{};
    ssize_t count = -1;
    do {
        count = ::read(fd, &note, sizeof note);
    } while (count < 0 && errno == EINTR);
    if (count == 0) return std::optional<ChildNote>{};
    if (count != static_cast<ssize_t>(sizeof note)) return failed(name, "read", errno);
    return std::optional{note};
}

/// Waits until the child has become the stage or has said why it cannot: 0, or the errno for which
/// it could not be pinned.
Result<int> await_exec(const std::string& name, int fd, std::chrono::milliseconds exec_limit) {
    const auto deadline = std::chrono::steady_clock::now() + exec_limit;
    int pin_error = 0;
    for (;;) {
        const Result<std::optional<ChildNote>> note = next_note(name, fd, deadline, exec_limit);
        if (!note.ok()) return note.error();
        if (!note.value()) return pin_error;
        const auto [error, step] = *note.value();
        if (step != Affinity) {
            const auto index = static_cast<std::size_t>(step);
            return failed(name, index < kSteps.size() ? kSteps[index] : "exec", error);
        }
        pin_error = error;
    }
}

/// The path by which this program was started, for a container without /proc; nullptr if it is not
/// known.
const char* path_of_program() {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address as the kernel hands it over
    return reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
}

/// SIGKILL needs no cooperation, but a process in the kernel may take its time: then it is left.
void kill_and_reap(pid_t pid) {
    ::kill(pid, SIGKILL);
    for (int i = 0; i < 1'000 && ::waitpid(pid, nullptr, WNOHANG) == 0; ++i) ::usleep(1'000);
}

/// oom_score_adj: when memory runs out the process with the highest value dies first. A stage can
/// be rebuilt and the conductor cannot.
std::uint32_t death_penalty(OnDeath on_death) {
    constexpr std::uint32_t kStagePenalty = 300;
    constexpr std::uint32_t kDisposablePenalty = 500;
    return on_death == OnDeath::RestartAlone ? kDisposablePenalty : kStagePenalty;
}

}  // namespace

Result<Spawned> spawn_stage(const ProcessSpec& process,
                            const std::vector<std::string>& command,
                            std::chrono::milliseconds exec_limit) {
    if (!process.cores.empty()) {
        const Result<Machine> machine = read_machine();
        if (!machine.ok()) return machine.error();
        const Status allowed =
            check_cores(machine.value(), process.cores, "stage '" + process.name + "'");
        if (!allowed.ok()) return allowed.error();
    }
    Result<std::pair<ControlSocket, ControlSocket>> sockets = ControlSocket::make_pair();
    if (!sockets.ok()) return sockets.error();
    auto& [ours, theirs] = sockets.value();
    OwnedFd control_watch{::fcntl(ours.fd(), F_DUPFD_CLOEXEC, 0)};
    if (!control_watch) return failed(process.name, "fcntl(F_DUPFD_CLOEXEC)", errno);
    Result<Pipe> output = make_pipe(process.name);
    if (!output.ok()) return output.error();
    Result<Pipe> notes = make_pipe(process.name);
    if (!notes.ok()) return notes.error();
    const OwnedFd null_in{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (!null_in) return failed(process.name, "open(/dev/null)", errno);

    const bool own = command.empty();
    const std::string path = own ? kOwnProgram : command.front();
    std::vector<std::string> arguments = command;
    // The first word is its name in ps and top; tests and users find stages by it.
    if (own) arguments = {"paceline: " + process.name, kStageSubcommand};
    arguments.insert(arguments.end(), {kControlFdOption, std::to_string(theirs.fd())});
    Plan plan{path.c_str(),
              own ? path_of_program() : nullptr,
              {},
              mask_of(process.cores),
              ::getpid(),
              null_in.get(),
              output.value().write.get(),
              theirs.fd(),
              notes.value().write.get(),
              std::to_string(death_penalty(process.on_death))};
    for (std::string& argument : arguments) plan.argv.push_back(argument.data());
    plan.argv.push_back(nullptr);

    const pid_t pid = ::fork();
    if (pid < 0) return failed(process.name, "fork", errno);
    if (pid == 0) become_stage(plan);

    notes.value().write.reset();
    const Result<int> started = await_exec(process.name, notes.value().read.get(), exec_limit);
    if (!started.ok()) {
        kill_and_reap(pid);
        return started.error();
    }
    OwnedFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
    const bool watched = pidfd || is_denied(errno);
    if (!watched || ::fcntl(output.value().read.get(), F_SETFL, O_NONBLOCK) != 0) {
        const int error = errno;
        kill_and_reap(pid);
        return failed(process.name, watched ? "fcntl" : "pidfd_open", error);
    }
    return Spawned{pid,
                   std::move(pidfd),
                   std::move(output.value().read),
                   std::move(ours),
                   std::move(control_watch),
                   started.value()};
}

std::string describe_exit(int code, int status) {
    if (code == CLD_EXITED) return fmt::format("exited with code {}", status);
    const char* name = ::strsignal(status);
    return fmt::format("was killed by signal {} ({}){}", status,
                       (name != nullptr ? name : "unknown"),
                       (code == CLD_DUMPED ? ", core dumped" : ""));
}

}  // namespace paceline
