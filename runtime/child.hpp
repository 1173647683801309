// Child: one started stage as its supervisor sees it.
//
// Watches three things at once: the pidfd (it has ended), the control socket (it speaks, or has
// closed) and its output. What happened is kept as state; what follows from it is decided by the
// supervisor. Included by supervisor.cpp and child.cpp alone, because it brings Asio with it.
//
//     [Loading] --Hello--> [Greeted] --Ready--> [Ready]      and from each of them:
//     gone(): it has ended and is reaped        failure: it reported an error or closed its socket
//
// Owns its descriptors; the destructor neither kills nor reaps. One thread, the io_context's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "ipc/base/result.hpp"
#include "ipc/control_socket.hpp"
#include "ipc/doorbell.hpp"
#include "runtime/child_log.hpp"
#include "runtime/spawn.hpp"
#include "runtime/supervisor.hpp"

namespace paceline {

class Child {
public:
    enum class State : std::uint8_t { Loading, Greeted, Ready };
    /// Called for a control message that is not about starting and ending.
    using OnMail = std::function<void(StageId from, control::Message message)>;

    Child(
        boost::asio::io_context& io, ChildSpec spec, Spawned started, ChildLog log, OnMail on_mail);
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    [[nodiscard]] const ChildSpec& spec() const { return spec_; }
    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] const std::optional<control::Hello>& hello() const { return hello_; }
    [[nodiscard]] bool gone() const { return exit_text_.has_value(); }
    [[nodiscard]] bool ended_well() const { return ended_well_; }
    /// Dead, dying or not to be relied on any more.
    [[nodiscard]] bool in_trouble() const { return gone() || failure_.has_value(); }

    /// Sends, and announces if the child's doorbell is known.
    [[nodiscard]] Status send(const control::Message& message,
                              std::span<const int> files = {},
                              ControlSocket::Millis limit = ControlSocket::Millis{10'000});
    void set_bell(Doorbell bell) { bell_ = std::move(bell); }

    /// SIGKILL to the whole process group; gone() follows through the io_context.
    void kill();
    /// "stage 'segment-1' (process 42)", for messages.
    [[nodiscard]] std::string title() const;
    /// "; its last lines: ..." or nothing.
    [[nodiscard]] std::string last_words() const;
    /// The error of a child in trouble: how it ended, what it said.
    [[nodiscard]] Error obituary() const;

private:
    using Descriptor = boost::asio::posix::stream_descriptor;
    void watch_exit();
    void watch_control();
    void watch_output();
    void reap();
    void read_output();
    void receive();
    void take(control::Message message);

    ChildSpec spec_;
    pid_t pid_;
    ControlSocket control_;
    Descriptor exit_watch_;     // owns the pidfd
    Descriptor control_watch_;  // a second descriptor of the control socket
    Descriptor output_watch_;   // owns the pipe of stdout and stderr
    ChildLog log_;
    OnMail on_mail_;
    State state_ = State::Loading;
    std::optional<control::Hello> hello_;
    std::optional<Doorbell> bell_;
    std::optional<std::string> exit_text_;  // how it ended
    bool ended_well_ = false;
    bool output_closed_ = false;
    std::optional<Error> failure_;  // what it reported, or what its socket showed
};

}  // namespace paceline
