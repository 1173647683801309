#include "launch/grammar/helper_process.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <utility>

#include "launch/grammar/helper_main.hpp"
#include "runtime/loop/stage_process.hpp"

namespace paceline {
namespace {

constexpr int kHelperFd = 3;

Error start_failed(const char* what, int error) {
    return {Errc::System,
            fmt::format("a grammar helper cannot be started: {}: {}", what, std::strerror(error))};
}

/// Everything but its socket and stderr is closed in the child.
class HelperSpawn {
public:
    explicit HelperSpawn(int socket) {
        ::posix_spawn_file_actions_init(&files_);
        ::posix_spawn_file_actions_addopen(&files_, 0, "/dev/null", O_RDONLY, 0);
        ::posix_spawn_file_actions_addopen(&files_, 1, "/dev/null", O_WRONLY, 0);
        ::posix_spawn_file_actions_adddup2(&files_, socket, kHelperFd);
        ::posix_spawn_file_actions_addclosefrom_np(&files_, kHelperFd + 1);
        ::posix_spawnattr_init(&attributes_);
        sigset_t none;
        sigset_t all;
        ::sigemptyset(&none);
        ::sigfillset(&all);
        ::posix_spawnattr_setsigmask(&attributes_, &none);
        ::posix_spawnattr_setsigdefault(&attributes_, &all);
        // A group of its own: Ctrl-C is for the program, which ends its helpers itself.
        ::posix_spawnattr_setpgroup(&attributes_, 0);
        ::posix_spawnattr_setflags(
            &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    }
    HelperSpawn(const HelperSpawn&) = delete;
    HelperSpawn& operator=(const HelperSpawn&) = delete;
    ~HelperSpawn() {
        ::posix_spawn_file_actions_destroy(&files_);
        ::posix_spawnattr_destroy(&attributes_);
    }
    [[nodiscard]] int spawn(pid_t& pid, const char* path, char* const* argv) const {
        return ::posix_spawn(&pid, path, &files_, &attributes_, argv, environ);
    }

private:
    posix_spawn_file_actions_t files_{};
    posix_spawnattr_t attributes_{};
};

}  // namespace

HelperProcess::HelperProcess(const HelperTask& task, std::vector<std::string> command)
    : task_{task}, command_{std::move(command)} {}

HelperProcess::~HelperProcess() {
    end();
}

Status HelperProcess::start() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return start_failed("socketpair", errno);
    OwnedFd ours{ends[0]};
    OwnedFd theirs{ends[1]};
    if (theirs.get() <= kHelperFd) {  // dup2 to itself would leave it to be closed at exec
        OwnedFd higher{::fcntl(theirs.get(), F_DUPFD_CLOEXEC, kHelperFd + 1)};
        if (!higher) return start_failed("fcntl(F_DUPFD_CLOEXEC)", errno);
        theirs = std::move(higher);
    }
    const bool own = command_.empty();
    const std::string path = own ? "/proc/self/exe" : command_.front();
    std::vector<std::string> arguments = command_;
    if (own) arguments = {"paceline: grammar", kGrammarHelperSubcommand};
    arguments.insert(arguments.end(), {kControlFdOption, std::to_string(kHelperFd)});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (const int error = HelperSpawn{theirs.get()}.spawn(pid_, path.c_str(), argv.data());
        error != 0) {
        pid_ = -1;
        return start_failed("posix_spawn", error);
    }
    {
        const std::lock_guard lock{mutex_};
        socket_ = std::move(ours);
        if (stopped_) ::shutdown(socket_.get(), SHUT_RDWR);
    }
    theirs.reset();
    if (write_frame(socket_.get(), encode_task(task_))) return {};
    end();
    return Error{Errc::System, "a grammar helper ended while it was started"};
}

/// A process that was killed, now or while it waited, says nothing of the grammar.
Result<CompiledGrammarPtr> HelperProcess::compile(const GrammarSpec& spec) {
    const auto begun = std::chrono::steady_clock::now();
    Result<CompiledGrammarPtr> made = compile_once(spec);
    const bool killed = !made.ok() && made.error().code == Errc::System && !is_stopped();
    if (killed && std::chrono::steady_clock::now() - begun < task_.limits.processor_time)
        made = compile_once(spec);
    if (!made.ok() && is_stopped()) return Error{Errc::Cancelled, "shutting down"};
    return made;
}

bool HelperProcess::is_stopped() {
    const std::lock_guard lock{mutex_};
    return stopped_;
}

Result<CompiledGrammarPtr> HelperProcess::compile_once(const GrammarSpec& spec) {
    if (pid_ < 0) {
        if (Status started = start(); !started) return started.error();
    }
    // Beside busy cores its own limit can take many times as long to be reached.
    constexpr std::chrono::milliseconds kBesideOthers{30'000};
    const std::chrono::milliseconds wall = 20 * task_.limits.processor_time + kBesideOthers;
    if (!write_frame(socket_.get(), encode_spec(spec))) return why_it_ended();
    const std::optional<std::string> frame =
        read_frame(socket_.get(), kCompiledGrammarMax + 64, wall);
    if (!frame) return why_it_ended();
    Result<CompiledGrammarPtr> reply = decode_reply(*frame, hash_of(spec));
    if (!reply.ok() && reply.error().code == Errc::Protocol) end();
    return reply;
}

/// The next grammar gets another process.
Error HelperProcess::why_it_ended() {
    close_socket();
    ::kill(pid_, SIGKILL);  // one that has not ended by itself: the time on the wall is over
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    const GrammarLimits& limits = task_.limits;
    const double seconds = static_cast<double>(limits.processor_time.count()) / 1000.0;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        return {Errc::System,
                "the compiler of grammars was killed, or had no time to end beside "
                "other work; try again"};
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF) {
        return {Errc::BadArgument, fmt::format("the grammar takes more than {:g} s of processor "
                                               "time to compile, which is the limit",
                                               seconds)};
    }
    return {Errc::BadArgument,
            fmt::format("the grammar cannot be compiled: its compiler ended with {} {}; a grammar "
                        "has {:g} s of processor "
                        "time and {} MiB of memory",
                        WIFSIGNALED(status) ? "signal" : "code",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), seconds,
                        limits.memory_bytes >> 20)};
}

void HelperProcess::stop() {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
    if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
}

void HelperProcess::close_socket() {
    const std::lock_guard lock{mutex_};
    socket_.reset();
}

void HelperProcess::end() {
    close_socket();
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
}

}  // namespace paceline
