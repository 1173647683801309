#include "runtime/child.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <variant>

#include "ipc/messages.hpp"

namespace paceline {

Child::Child(
    boost::asio::io_context& io, ChildSpec spec, Spawned started, ChildLog log, OnMail on_mail)
    : spec_{std::move(spec)},
      pid_{started.pid},
      control_{std::move(started.control)},
      exit_watch_{io, started.pidfd.release()},
      control_watch_{io, ::fcntl(control_.fd(), F_DUPFD_CLOEXEC, 0)},
      output_watch_{io, started.output.release()},
      log_{std::move(log)},
      on_mail_{std::move(on_mail)} {
    watch_exit();
    watch_control();
    watch_output();
}

void Child::watch_exit() {
    exit_watch_.async_wait(Descriptor::wait_read, [this](const boost::system::error_code& error) {
        if (!error) reap();
    });
}

void Child::watch_control() {
    control_watch_.async_wait(Descriptor::wait_read,
                              [this](const boost::system::error_code& error) {
                                  if (error) return;
                                  receive();
                                  if (!failure_) watch_control();
                              });
}

void Child::watch_output() {
    output_watch_.async_wait(Descriptor::wait_read, [this](const boost::system::error_code& error) {
        if (error) return;
        read_output();
        if (!output_closed_) watch_output();
    });
}

void Child::reap() {
    if (gone()) return;
    // Its process group goes with it: a stage leaves no helpers behind. Before it is reaped, so
    // that the number still belongs to it.
    kill();
    siginfo_t info{};
    if (::waitid(P_PIDFD, static_cast<id_t>(exit_watch_.native_handle()), &info, WEXITED) != 0) {
        exit_text_ = std::string{"vanished ("} + std::strerror(errno) + ")";
        return;
    }
    exit_text_ = describe_exit(info.si_code, info.si_status);
    ended_well_ = info.si_code == CLD_EXITED && info.si_status == 0;
    receive();
    read_output();
    log_.finish();
}

void Child::read_output() {
    std::array<char, 4096> text;
    for (;;) {
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

void Child::receive() {
    while (!failure_) {
        Result<std::optional<ControlSocket::Received>> received = control_.try_receive();
        if (!received.ok()) {
            failure_ = received.error();
        } else if (!received.value()) {
            return;
        } else {
            take(std::move(received.value()->message));
        }
    }
}

void Child::take(control::Message message) {
    if (auto* hello = std::get_if<control::Hello>(&message)) {
        if (hello->wire_version != msg::kWireVersion) {
            failure_ = Error{Errc::Protocol,
                             "it speaks wire version " + std::to_string(hello->wire_version) +
                                 ", the conductor " + std::to_string(msg::kWireVersion)};
            return;
        }
        hello_ = std::move(*hello);
        state_ = std::max(state_, State::Greeted);
    } else if (std::holds_alternative<control::Ready>(message)) {
        // Ready before Hello would let a stage through that nobody has compared.
        if (state_ == State::Greeted) state_ = State::Ready;
    } else if (auto* failed = std::get_if<control::Failed>(&message)) {
        const bool known = failed->code <= static_cast<std::uint8_t>(Errc::System);
        failure_ = Error{known ? static_cast<Errc>(failed->code) : Errc::Protocol,
                         std::move(failed->text)};
    } else {
        on_mail_(spec_.id, std::move(message));
    }
}

Status Child::send(const control::Message& message,
                   std::span<const int> files,
                   ControlSocket::Millis limit) {
    const Status sent = control_.send(message, files, limit);
    if (sent.ok() && bell_) bell_->announce();
    return sent;
}

void Child::kill() {
    if (!gone()) ::kill(-pid_, SIGKILL);
}

std::string Child::title() const {
    return "stage '" + spec_.name + "' (process " + std::to_string(pid_) + ")";
}

std::string Child::last_words() const {
    const std::string words = log_.last_words();
    return words.empty() ? "" : "; its last lines:" + words;
}

Error Child::obituary() const {
    const bool told = failure_ && failure_->code != Errc::PeerGone;
    std::string text = title() + " ";
    if (gone()) {
        text += *exit_text_;
    } else {
        text += told ? "failed" : "closed its control channel";
    }
    if (told) text += ": " + failure_->what;
    return {told ? failure_->code : Errc::PeerGone, text + last_words()};
}

}  // namespace paceline
