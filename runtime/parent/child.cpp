#include "runtime/parent/child.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/core.h>
#include <fstream>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>

#include "runtime/parent/own_cgroups.hpp"

namespace paceline {
namespace {

constexpr std::size_t kLastWords = 12;  // lines
// Limits, so that a child that writes endlessly does not delay reading from others.
constexpr int kReadsPerPoll = 1;       // of its output, 4 KiB each
constexpr int kMessagesPerPoll = 256;  // of its control socket
constexpr int kLastReads = 32;         // of one that has ended: more than a pipe holds
constexpr int kLastMessages = 64;      // and more than a socket does

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
      control_{std::move(started.control)},
      exit_watch_{io},
      control_watch_{io, started.control_watch.release()},
      output_watch_{io, started.output.release()},
      log_{kLastWords,
           [this](std::string_view line) {
               if (events_.on_line) events_.on_line(who_, line);
           }},
      oom_kills_{count_oom_kills()} {
    if (started.pidfd) {
        exit_watch_.assign(started.pidfd.release());
        watch_exit();
    }
    watch_control();
    watch_output();
}

void Child::watch_exit() {
    exit_watch_.async_wait(Descriptor::wait_read, [this](const boost::system::error_code& error) {
        if (error) return;
        // Readiness is only a hint, and reaping kills: never one that lives.
        if (has_ended()) {
            reap();
        } else {
            watch_exit();
        }
    });
}

void Child::watch_control() {
    control_watch_.async_wait(Descriptor::wait_read,
                              [this](const boost::system::error_code& error) {
                                  if (!error) listen();
                              });
}

/// One poll. What was already read causes no further wake-up: then the next poll is requested at
/// once.
void Child::listen() {
    if (receive()) {
        boost::asio::post(control_watch_.get_executor(), [this] { listen(); });
    } else if (!silent_ && !gone_) {
        watch_control();
    }
}

void Child::watch_output() {
    output_watch_.async_wait(Descriptor::wait_read, [this](const boost::system::error_code& error) {
        if (error) return;
        read_output(kReadsPerPoll);
        if (!output_closed_) watch_output();
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
    for (int i = 0; i < kLastMessages && receive();) ++i;
    read_output(kLastReads);
    log_.finish();
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

void Child::read_output(int reads_max) {
    std::array<char, 4096> text;
    for (int reads = 0; reads < reads_max; ++reads) {
        const ssize_t count = ::read(output_watch_.native_handle(), text.data(), text.size());
        if (count > 0) {
            log_.append({text.data(), static_cast<std::size_t>(count)});
            continue;
        }
        if (count < 0 && errno == EINTR) continue;
        output_closed_ = output_closed_ || count == 0;
        return;
    }
}

/// Whether there may be more.
bool Child::receive() {
    for (int messages = 0; messages < kMessagesPerPoll; ++messages) {
        if (silent_ || gone_) return false;
        Result<std::optional<ControlSocket::Received>> received = control_.try_receive();
        if (!received.ok()) {
            silent_ = true;
            events_.on_silence(who_, received.error());
        } else if (!received.value()) {
            return false;
        } else {
            const auto* failed = std::get_if<control::Failed>(&received.value()->message);
            if (failed != nullptr) failure_ = failed->text;
            events_.on_message(who_, std::move(*received.value()));
        }
    }
    return true;
}

Status Child::send(const control::Message& message,
                   std::span<const int> files,
                   std::chrono::milliseconds limit,
                   Envelope envelope) {
    if (silent_) return Error{Errc::PeerGone, title() + " is not listening any more"};
    const Status sent = outbox_.push(control_, ControlSocket::Frame{message, files, envelope},
                                     limit, ControlOutbox::Clock::now());
    if (!sent.ok()) fall_silent(sent.error());
    return sent;
}

void Child::flush() {
    if (silent_ || gone_ || outbox_.empty()) return;
    const auto now = ControlOutbox::Clock::now();
    if (stopped_) outbox_.excuse(now);
    const Result<bool> moved = outbox_.flush(control_, now);
    if (!moved.ok()) return fall_silent(moved.error());
    if (moved.value() && events_.on_flushed) events_.on_flushed(who_);
}

void Child::fall_silent(const Error& error) {
    // If it has closed its end, that is how it is reported.
    (void)receive();
    if (silent_) return;
    // Half a message may have been sent: no further message can follow on this socket.
    silent_ = true;
    events_.on_silence(who_, {Errc::System, title() + ": " + error.what});
}

void Child::kill() {
    if (gone_) return;
    // One whose socket closed first was most likely dead already: then the signal came from
    // elsewhere.
    if (!silent_) killed_ = true;
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

std::string Child::last_words() const {
    const std::string words = log_.last_words();
    return words.empty() ? "" : "; its last lines:" + words;
}

}  // namespace paceline
