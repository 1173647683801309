#include "runtime/parent/child.hpp"

#include <cerrno>
#include <cstring>
#include <fmt/core.h>
#include <fstream>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <variant>

#include "runtime/parent/own_cgroups.hpp"

namespace paceline {
namespace {

/// How often the kernel's out-of-memory killer has struck in this process's control group, which
/// its stages share; nothing where that cannot be read.
std::optional<std::uint64_t> count_oom_kills() {
    std::string folder;
    for (const OwnCgroup& group : own_cgroups()) {
        if (group.is_version_2()) folder = group.path;
    }
    std::ifstream events{"/sys/fs/cgroup" + folder + "/memory.events"};
    std::string name;
    for (std::uint64_t count = 0; events >> name >> count;) {
        if (name == "oom_kill") return count;
    }
    return std::nullopt;
}

}  // namespace

Child::Child(boost::asio::io_context& io,
             Incarnation who,
             std::string name,
             Spawned started,
             const NodeEvents& events)
    : who_{who},
      name_{std::move(name)},
      events_{events},
      pid_{started.pid},
      exit_watch_{io},
      control_{io,
               std::move(started.control),
               std::move(started.control_watch),
               title(),
               [this](ControlSocket::Received received) { take(std::move(received)); },
               [this](const Error& error) { events_.on_silence(who_, error); }},
      output_{io, std::move(started.output),
              [this](std::string_view line) {
                  if (events_.on_line) events_.on_line(who_, line);
              }},
      oom_kills_{count_oom_kills()} {
    if (started.pidfd) {
        exit_watch_.assign(started.pidfd.release());
        watch_exit();
    }
    control_.watch();
    output_.watch();
}

void Child::watch_exit() {
    exit_watch_.async_wait(exit_watch_.wait_read, [this](const boost::system::error_code& error) {
        if (error) return;
        // Readiness is only a hint, and reaping kills: never one that lives.
        if (has_ended()) {
            reap();
        } else {
            watch_exit();
        }
    });
}

/// The number belongs to this child until it is reaped. Also true if the kernel knows no such
/// child.
bool Child::has_ended() const {
    siginfo_t info{};
    const auto id = static_cast<id_t>(pid_);
    return ::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

void Child::reap() {
    if (gone_) return;
    // Its process group goes with it: a stage leaves no helpers behind. Before it is reaped, so
    // that the number still belongs to it.
    ::kill(-pid_, SIGKILL);
    siginfo_t info{};
    std::string end;
    bool well = false;
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0) {
        end = std::string{"vanished ("} + std::strerror(errno) + ")";
    } else {
        end = describe_exit(info.si_code, info.si_status);
        well = info.si_code == CLD_EXITED && info.si_status == 0;
        if (killed_ && info.si_code == CLD_KILLED && info.si_status == SIGKILL) end = "was killed";
    }
    control_.finish();
    output_.finish();
    gone_ = true;
    events_.on_exit(who_, well, exit_report(end));
}

std::string Child::exit_report(const std::string& end) const {
    std::string text = title() + " " + end;
    const std::optional<std::uint64_t> oom_kills = count_oom_kills();
    if (!killed_ && oom_kills && oom_kills_ && *oom_kills > *oom_kills_) {
        text += " (the kernel's out-of-memory killer was at work)";
    }
    if (!failure_.empty()) text += ": " + failure_;
    return text + last_words();
}

void Child::take(ControlSocket::Received received) {
    const auto* failed = std::get_if<control::Failed>(&received.message);
    if (failed != nullptr) failure_ = failed->text;
    events_.on_message(who_, std::move(received));
}

void Child::flush() {
    if (control_.flush(stopped_) && events_.on_flushed) events_.on_flushed(who_);
}

void Child::kill() {
    if (gone_) return;
    // One whose socket closed first was most likely dead already: then the signal came from
    // elsewhere.
    if (!control_.silent()) killed_ = true;
    // It has no group of its own where setpgid is denied (spawn.hpp).
    if (::kill(-pid_, SIGKILL) != 0) ::kill(pid_, SIGKILL);
}

void Child::look_for_changes() {
    if (gone_) return;
    for (;;) {
        siginfo_t info{};
        const int answer =
            ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WCONTINUED | WNOHANG);
        if (answer != 0 || info.si_pid == 0) break;
        stopped_ = info.si_code == CLD_STOPPED;
        if (events_.on_stopped) events_.on_stopped(who_, stopped_);
    }
    if (!exit_watch_.is_open() && has_ended()) reap();
}

std::string Child::title() const {
    return fmt::format("stage '{}' (process {})", name_, pid_);
}

}  // namespace paceline
