#include "runtime/supervisor.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>

#include "ipc/base/check.hpp"
#include "ipc/control_socket.hpp"
#include "ipc/messages.hpp"
#include "runtime/child_log.hpp"
#include "runtime/spawn.hpp"

namespace paceline {
namespace {

namespace asio = boost::asio;
using Descriptor = asio::posix::stream_descriptor;
using SteadyClock = std::chrono::steady_clock;

/// Between the first sign of a death (a closed socket, a Failed) and the rest of the story: exit
/// status and last words.
constexpr std::chrono::milliseconds kStoryLimit{500};
constexpr std::chrono::milliseconds kReapLimit{5'000};

/// One started process.
struct Child {
    enum class State : std::uint8_t { Loading, Greeted, Ready };

    Child(asio::io_context& io, ChildSpec s, Spawned started, ChildLog child_log)
        : spec{std::move(s)}, pid{started.pid}, control{std::move(started.control)},
          exit_watch{io, started.pidfd.release()}, control_watch{io, ::dup(control.fd())},
          output_watch{io, started.output.release()}, log{std::move(child_log)} {}

    [[nodiscard]] bool gone() const { return exit_text.has_value(); }

    ChildSpec spec;
    pid_t pid;
    ControlSocket control;
    Descriptor exit_watch;     // owns the pidfd
    Descriptor control_watch;  // a second descriptor of the control socket
    Descriptor output_watch;   // owns the pipe of stdout and stderr
    ChildLog log;
    State state = State::Loading;
    std::optional<control::Hello> hello;
    std::optional<Doorbell> bell;
    std::optional<std::string> exit_text;  // how it ended
    bool ended_well = false;
    bool output_closed = false;
    std::optional<Error> failure;  // what it reported, or what its socket showed
};

}  // namespace

Result<OnDeath> parse_on_death(std::string_view text) {
    for (const OnDeath policy : {OnDeath::StopRun, OnDeath::RestartAlone, OnDeath::RebuildChain}) {
        if (text == name_of(policy)) return policy;
    }
    return Error{Errc::BadArgument, "'" + std::string{text} +
                                        "' is not a policy for a stage's death: stop-run, "
                                        "restart-alone or rebuild-chain"};
}

const char* name_of(OnDeath policy) {
    switch (policy) {
        case OnDeath::StopRun: return "stop-run";
        case OnDeath::RestartAlone: return "restart-alone";
        case OnDeath::RebuildChain: return "rebuild-chain";
    }
    return "unknown";
}

class Supervisor::Impl {
public:
    explicit Impl(SupervisorOptions options) : options_{std::move(options)}, signals_{io_} {
        if (options_.catch_signals) {
            signals_.add(SIGINT);
            signals_.add(SIGTERM);
            // Only so that a child's end interrupts a wait elsewhere on this thread; the pidfd
            // is what says whose it is.
            signals_.add(SIGCHLD);
            watch_signals();
        }
    }
    ~Impl() { kill_all(); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    [[nodiscard]] Status start(std::span<const ChildSpec> children);
    [[nodiscard]] Result<std::vector<control::Hello>> await_hellos();
    [[nodiscard]] Result<Wiring> wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros);
    [[nodiscard]] Status shutdown();
    [[nodiscard]] Status send(StageId to, const control::Message& message);
    [[nodiscard]] Status poll(const Deliver& deliver);
    [[nodiscard]] std::vector<pid_t> pids() const;

private:
    [[nodiscard]] Status start_one(const ChildSpec& spec);
    [[nodiscard]] Child* find(StageId id);
    void watch_signals();
    void watch_exit(Child& child);
    void watch_control(Child& child);
    void watch_output(Child& child);
    void reap(Child& child);
    void read_output(Child& child);
    void receive(Child& child);
    void take(Child& child, control::Message message);
    [[nodiscard]] Error obituary(Child& child);
    [[nodiscard]] Status trouble();
    /// Runs handlers until `done`, trouble, or the deadline (true if done).
    template <class Done>
    [[nodiscard]] Result<bool> run_until(SteadyClock::time_point deadline, Done done);
    [[nodiscard]] Status await_state(Child::State state, const char* what);
    void kill_all();

    SupervisorOptions options_;
    asio::io_context io_{1};
    asio::signal_set signals_;
    int signal_ = 0;                                // SIGINT or SIGTERM, once one has come
    std::vector<std::unique_ptr<Child>> children_;  // the child table, in starting order
    std::deque<std::pair<StageId, control::Message>> mail_;
    std::optional<WiringPlan> plan_;
    bool ending_ = false;  // children may end now
};

// ---- what is watched ----

void Supervisor::Impl::watch_signals() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
        if (error) return;
        if (signal != SIGCHLD) signal_ = signal;
        watch_signals();
    });
}

void Supervisor::Impl::watch_exit(Child& child) {
    child.exit_watch.async_wait(Descriptor::wait_read, [this, &child](const boost::system::error_code& e) {
        if (!e) reap(child);
    });
}

void Supervisor::Impl::watch_control(Child& child) {
    child.control_watch.async_wait(
        Descriptor::wait_read, [this, &child](const boost::system::error_code& error) {
            if (error) return;
            receive(child);
            if (!child.failure) watch_control(child);
        });
}

void Supervisor::Impl::watch_output(Child& child) {
    child.output_watch.async_wait(Descriptor::wait_read,
                                  [this, &child](const boost::system::error_code& error) {
                                      if (error) return;
                                      read_output(child);
                                      if (!child.output_closed) watch_output(child);
                                  });
}

void Supervisor::Impl::reap(Child& child) {
    if (child.gone()) return;
    siginfo_t info{};
    if (::waitid(P_PIDFD, static_cast<id_t>(child.exit_watch.native_handle()), &info, WEXITED) != 0) {
        child.exit_text = std::string{"vanished ("} + std::strerror(errno) + ")";
        return;
    }
    child.exit_text = describe_exit(info.si_code, info.si_status);
    child.ended_well = info.si_code == CLD_EXITED && info.si_status == 0;
    // Its process group goes with it: a stage leaves no helpers behind.
    ::kill(-child.pid, SIGKILL);
    receive(child);
    read_output(child);
    child.log.finish();
}

void Supervisor::Impl::read_output(Child& child) {
    std::array<char, 4096> text;
    for (;;) {
        const ssize_t count = ::read(child.output_watch.native_handle(), text.data(), text.size());
        if (count > 0) {
            child.log.append({text.data(), static_cast<std::size_t>(count)});
            continue;
        }
        if (count < 0 && errno == EINTR) continue;
        child.output_closed = child.output_closed || count == 0;
        return;
    }
}

void Supervisor::Impl::receive(Child& child) {
    while (!child.failure) {
        Result<std::optional<ControlSocket::Received>> received = child.control.try_receive();
        if (!received.ok()) {
            child.failure = received.error();
        } else if (!received.value()) {
            return;
        } else {
            take(child, std::move(received.value()->message));
        }
    }
}

void Supervisor::Impl::take(Child& child, control::Message message) {
    if (auto* hello = std::get_if<control::Hello>(&message)) {
        if (hello->wire_version != msg::kWireVersion) {
            child.failure = Error{Errc::Protocol, "it speaks wire version " +
                                                      std::to_string(hello->wire_version) +
                                                      ", the conductor " +
                                                      std::to_string(msg::kWireVersion)};
            return;
        }
        child.hello = std::move(*hello);
        child.state = std::max(child.state, Child::State::Greeted);
    } else if (std::holds_alternative<control::Ready>(message)) {
        child.state = Child::State::Ready;
    } else if (auto* failed = std::get_if<control::Failed>(&message)) {
        const bool known = failed->code <= static_cast<std::uint8_t>(Errc::System);
        child.failure = Error{known ? static_cast<Errc>(failed->code) : Errc::Protocol,
                              std::move(failed->text)};
    } else {
        mail_.emplace_back(child.spec.id, std::move(message));
    }
}

// ---- trouble ----

/// The error of a child that is dead or dying: waits a moment for its exit status and last words.
Error Supervisor::Impl::obituary(Child& child) {
    const auto deadline = SteadyClock::now() + kStoryLimit;
    while (!child.gone() && SteadyClock::now() < deadline) {
        io_.restart();
        io_.run_one_until(deadline);
    }
    Error error{Errc::PeerGone, "stage '" + child.spec.name + "' (process " +
                                    std::to_string(child.pid) + ") "};
    const bool told = child.failure && child.failure->code != Errc::PeerGone;
    if (told) error.code = child.failure->code;
    if (child.gone()) {
        error.what += *child.exit_text;
    } else {
        error.what += told ? "failed" : "closed its control channel";
    }
    if (told) error.what += ": " + child.failure->what;
    const std::string words = child.log.last_words();
    if (!words.empty()) error.what += "; its last lines:" + words;
    return error;
}

Status Supervisor::Impl::trouble() {
    if (signal_ != 0) {
        return Error{Errc::Cancelled,
                     signal_ == SIGINT ? "interrupted (SIGINT)" : "asked to end (SIGTERM)"};
    }
    if (ending_) return {};
    for (const auto& child : children_) {
        // Only StopRun is implemented (start() saw to that): every death ends the run.
        if (child->gone() || child->failure) return obituary(*child);
    }
    return {};
}

template <class Done>
Result<bool> Supervisor::Impl::run_until(SteadyClock::time_point deadline, Done done) {
    for (;;) {
        io_.restart();
        io_.poll();
        const Status status = trouble();
        if (!status.ok()) return status.error();
        if (done()) return true;
        if (SteadyClock::now() >= deadline) return false;
        io_.restart();
        io_.run_one_until(deadline);
    }
}

// ---- starting ----

Status Supervisor::Impl::start(std::span<const ChildSpec> children) {
    PACE_CHECK(children_.empty(), "start() is called once");
    for (const ChildSpec& spec : children) {
        if (spec.on_death != OnDeath::StopRun) {
            return Error{Errc::Unsupported, "stage '" + spec.name + "': on_death = \"" +
                                                name_of(spec.on_death) +
                                                "\" is not available, only \"stop-run\" is"};
        }
        if (spec.id == kConductor || find(spec.id) != nullptr) {
            return Error{Errc::BadArgument, "stage '" + spec.name + "': number " +
                                                std::to_string(spec.id.value) + " is taken"};
        }
        const Status started = start_one(spec);
        if (!started.ok()) return started;
    }
    return {};
}

Status Supervisor::Impl::start_one(const ChildSpec& spec) {
    Result<Spawned> spawned = spawn_stage({spec.name, options_.command, spec.cores});
    if (!spawned.ok()) return spawned.error();
    ChildLog::OnLine on_line;
    if (options_.on_log) {
        on_line = [this, name = spec.name](std::string_view line) { options_.on_log(name, line); };
    }
    children_.push_back(std::make_unique<Child>(io_, spec, std::move(spawned).value(),
                                                ChildLog{options_.last_words, std::move(on_line)}));
    Child& child = *children_.back();
    watch_exit(child);
    watch_control(child);
    watch_output(child);
    const Status sent =
        child.control.send(control::Assign{spec.id, Epoch{1}, spec.name, spec.payload});
    // A child that is gone already has a better story to tell than its socket.
    return sent.ok() ? Status{} : Status{obituary(child)};
}

Child* Supervisor::Impl::find(StageId id) {
    for (const auto& child : children_) {
        if (child->spec.id == id) return child.get();
    }
    return nullptr;
}

Status Supervisor::Impl::await_state(Child::State state, const char* what) {
    const auto reached = [state](const auto& child) { return child->state >= state; };
    const Result<bool> all =
        run_until(SteadyClock::now() + options_.start_limit,
                  [&] { return std::all_of(children_.begin(), children_.end(), reached); });
    if (!all.ok()) return all.error();
    if (all.value()) return {};
    for (const auto& child : children_) {
        if (reached(child)) continue;
        const std::string words = child->log.last_words();
        return Error{Errc::PeerGone,
                     "stage '" + child->spec.name + "' (process " + std::to_string(child->pid) +
                         ") " + what + " within " + std::to_string(options_.start_limit.count()) +
                         " ms" + (words.empty() ? "" : "; its last lines:" + words)};
    }
    return {};
}

Result<std::vector<control::Hello>> Supervisor::Impl::await_hellos() {
    const Status greeted = await_state(Child::State::Greeted, "did not load");
    if (!greeted.ok()) return greeted.error();
    std::vector<control::Hello> hellos;
    for (const auto& child : children_) hellos.push_back(*child->hello);
    return hellos;
}

Result<Wiring> Supervisor::Impl::wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros) {
    std::vector<StageSpec> stages{{kConductor, Epoch{1}, 0}};
    for (const auto& child : children_) stages.push_back({child->spec.id, Epoch{1}, spin_micros});
    Result<WiringPlan> plan = WiringPlan::create(stages, edges);
    if (!plan.ok()) return plan.error();
    plan_ = std::move(plan).value();
    for (const auto& child : children_) {
        Result<Doorbell> bell = plan_->bell_of(child->spec.id);
        if (!bell.ok()) return bell.error();
        child->bell = std::move(bell).value();
        const WiringPlan::Letter letter = plan_->letter_for(child->spec.id);
        const Status sent = child->control.send(letter.wire, letter.files);
        if (!sent.ok()) return obituary(*child);
    }
    const Status ready = await_state(Child::State::Ready, "did not attach to its channels");
    if (!ready.ok()) return ready.error();
    return plan_->attach(kConductor);
}

// ---- running ----

Status Supervisor::Impl::send(StageId to, const control::Message& message) {
    Child* child = find(to);
    PACE_CHECK(child != nullptr, "a control message to a stage that was not started");
    const Status sent = child->control.send(message);
    if (!sent.ok()) return obituary(*child);
    if (child->bell) child->bell->announce();
    return {};
}

Status Supervisor::Impl::poll(const Deliver& deliver) {
    io_.restart();
    io_.poll();
    while (!mail_.empty()) {
        const auto [from, message] = std::move(mail_.front());
        mail_.pop_front();
        deliver(from, message);
    }
    return trouble();
}

std::vector<pid_t> Supervisor::Impl::pids() const {
    std::vector<pid_t> pids;
    for (const auto& child : children_) pids.push_back(child->pid);
    return pids;
}

// ---- ending ----

Status Supervisor::Impl::shutdown() {
    Status first = trouble();  // a death that nobody has asked about yet
    signal_ = 0;               // this is the orderly stop; another signal cuts it short
    ending_ = true;
    for (const auto& child : children_) {
        if (child->gone()) continue;
        const Status sent = child->control.send(control::Shutdown{}, {}, std::chrono::milliseconds{100});
        if (sent.ok() && child->bell) child->bell->announce();
    }
    const auto gone = [](const auto& child) { return child->gone(); };
    const Result<bool> all =
        run_until(SteadyClock::now() + options_.shutdown_grace,
                  [&] { return std::all_of(children_.begin(), children_.end(), gone); });
    for (const auto& child : children_) {
        if (!first.ok()) break;
        if (!child->gone()) {
            first = Error{Errc::PeerGone, "stage '" + child->spec.name + "' did not end within " +
                                              std::to_string(options_.shutdown_grace.count()) +
                                              " ms and was killed"};
        } else if (!child->ended_well) {
            first = obituary(*child);
        }
    }
    kill_all();
    if (first.ok() && !all.ok()) return all.error();
    return first;
}

void Supervisor::Impl::kill_all() {
    ending_ = true;
    signal_ = 0;
    for (const auto& child : children_) {
        if (!child->gone()) ::kill(-child->pid, SIGKILL);
    }
    // SIGKILL needs no cooperation, but a process in the kernel may take its time.
    const auto deadline = SteadyClock::now() + kReapLimit;
    const auto gone = [](const auto& child) { return child->gone(); };
    while (!std::all_of(children_.begin(), children_.end(), gone) && SteadyClock::now() < deadline) {
        io_.restart();
        io_.run_one_until(deadline);
    }
}

Supervisor::Supervisor(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
Supervisor::~Supervisor() = default;

Result<std::unique_ptr<Supervisor>> Supervisor::create(SupervisorOptions options) {
    try {
        return std::unique_ptr<Supervisor>{new Supervisor{std::make_unique<Impl>(std::move(options))}};
    } catch (const boost::system::system_error& error) {
        return Error{Errc::System, std::string{"cannot watch signals and children: "} + error.what()};
    }
}
Status Supervisor::start(std::span<const ChildSpec> children) { return impl_->start(children); }
Result<std::vector<control::Hello>> Supervisor::await_hellos() { return impl_->await_hellos(); }
Result<Wiring> Supervisor::wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros) {
    return impl_->wire(edges, spin_micros);
}
Status Supervisor::shutdown() { return impl_->shutdown(); }
Status Supervisor::send(StageId to, const control::Message& message) { return impl_->send(to, message); }
Status Supervisor::poll(const Deliver& deliver) { return impl_->poll(deliver); }
std::vector<pid_t> Supervisor::pids() const { return impl_->pids(); }

}  // namespace paceline
