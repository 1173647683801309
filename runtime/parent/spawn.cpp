#include "runtime/parent/spawn.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "runtime/loop/stage_process.hpp"
#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

/// What the child tells its parent when it cannot become the stage.
struct ChildFailure {
    int error;
    int step;
};
constexpr std::array kSteps = {"prctl", "setpgid", "close_range", "sched_setaffinity",
                               "dup2",  "fcntl",   "execv"};
enum Step : int { Prctl, Group, Close, Affinity, Streams, Inherit, Exec };

/// Everything the child needs, made before fork: it may only make system calls after it.
struct Plan {
    const char* path;
    std::vector<char*> argv;
    std::vector<std::uint64_t> core_mask;  // as sched_setaffinity reads it; empty: not pinned
    pid_t parent;
    int null_in;
    int output;
    int control;
    int failure;
    std::string death_penalty;  // as /proc/self/oom_score_adj takes it
};

[[noreturn]] void give_up(const Plan& plan, Step step) {
    const ChildFailure failure{errno, step};
    // If even this fails the parent sees the exit code.
    if (::write(plan.failure, &failure, sizeof failure) < 0) ::_exit(126);
    ::_exit(127);
}

/// The child between fork and exec.
[[noreturn]] void become_stage(const Plan& plan) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(plan, Prctl);
    if (::getppid() != plan.parent) ::_exit(125);  // died before the signal was armed
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) give_up(plan, Prctl);
    if (::setpgid(0, 0) != 0) give_up(plan, Group);

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
        give_up(plan, Affinity);
    }
    if (::dup2(plan.null_in, 0) < 0 || ::dup2(plan.output, 1) < 0 || ::dup2(plan.output, 2) < 0) {
        give_up(plan, Streams);
    }
    if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0) give_up(plan, Close);
    if (::fcntl(plan.control, F_SETFD, 0) != 0) give_up(plan, Inherit);
    ::execv(plan.path, plan.argv.data());
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

/// Waits until the child has become the stage (its end of the pipe closes at exec) or has said
/// why it cannot. A file system that does not answer, or another thread's fork that keeps a copy of
/// the pipe, must not block the parent for ever.
Status await_exec(const std::string& name, int fd, std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    for (int ready = 0; ready <= 0;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) {
            return Error{
                Errc::System,
                fmt::format("cannot start stage '{}': its process did not begin to run the "
                            "command within {} ms",
                            name, limit.count())};
        }
        ready = ::poll(&entry, 1, static_cast<int>(left.count()));
        if (ready < 0 && errno != EINTR) return failed(name, "poll", errno);
    }
    ChildFailure failure{};
    ssize_t count = -1;
    do {
        count = ::read(fd, &failure, sizeof failure);
    } while (count < 0 && errno == EINTR);
    if (count == 0) return {};
    if (count != static_cast<ssize_t>(sizeof failure)) return failed(name, "read", errno);
    const auto step = static_cast<std::size_t>(failure.step);
    return failed(name, step < kSteps.size() ? kSteps[step] : "exec", failure.error);
}

/// SIGKILL needs no cooperation, but a process in the kernel may take its time: then it is left.
void kill_and_reap(pid_t pid) {
    ::kill(pid, SIGKILL);
    for (int i = 0; i < 1'000 && ::waitpid(pid, nullptr, WNOHANG) == 0; ++i) ::usleep(1'000);
}

/// oom_score_adj: when memory runs out the process with the highest value dies first. A stage can be rebuilt and
/// the conductor cannot.
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
    Result<Pipe> output = make_pipe(process.name);
    if (!output.ok()) return output.error();
    Result<Pipe> failure = make_pipe(process.name);
    if (!failure.ok()) return failure.error();
    const OwnedFd null_in{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (!null_in) return failed(process.name, "open(/dev/null)", errno);

    const std::string path = command.empty() ? "/proc/self/exe" : command.front();
    std::vector<std::string> arguments = command;
    // The first word is its name in ps and top; tests and users find stages by it.
    if (command.empty()) arguments = {"paceline: " + process.name, kStageSubcommand};
    arguments.insert(arguments.end(), {kControlFdOption, std::to_string(theirs.fd())});
    Plan plan{path.c_str(),
              {},
              mask_of(process.cores),
              ::getpid(),
              null_in.get(),
              output.value().write.get(),
              theirs.fd(),
              failure.value().write.get(),
              std::to_string(death_penalty(process.on_death))};
    for (std::string& argument : arguments) plan.argv.push_back(argument.data());
    plan.argv.push_back(nullptr);

    const pid_t pid = ::fork();
    if (pid < 0) return failed(process.name, "fork", errno);
    if (pid == 0) become_stage(plan);

    failure.value().write.reset();
    const Status started = await_exec(process.name, failure.value().read.get(), exec_limit);
    if (!started.ok()) {
        kill_and_reap(pid);
        return started.error();
    }
    Spawned child{pid, OwnedFd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))},
                  std::move(output.value().read), std::move(ours)};
    const bool non_blocking = ::fcntl(child.output.get(), F_SETFL, O_NONBLOCK) == 0;
    if (!child.pidfd || !non_blocking) {
        const int error = errno;
        kill_and_reap(pid);
        return failed(process.name, child.pidfd ? "fcntl" : "pidfd_open", error);
    }
    return child;
}

std::string describe_exit(int code, int status) {
    if (code == CLD_EXITED) return fmt::format("exited with code {}", status);
    const char* name = ::strsignal(status);
    return fmt::format("was killed by signal {} ({}){}", status,
                       (name != nullptr ? name : "unknown"),
                       (code == CLD_DUMPED ? ", core dumped" : ""));
}

}  // namespace paceline
