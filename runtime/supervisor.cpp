#include "runtime/supervisor.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <utility>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "ipc/base/check.hpp"
#include "runtime/child.hpp"
#include "runtime/spawn.hpp"

namespace paceline {
namespace {

namespace asio = boost::asio;
using SteadyClock = std::chrono::steady_clock;

/// Between the first sign of a death (a closed socket, a Failed) and the rest of the story: exit
/// status and last words.
constexpr std::chrono::milliseconds kStoryLimit{500};
constexpr std::chrono::milliseconds kReapLimit{5'000};

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
        case OnDeath::StopRun:
            return "stop-run";
        case OnDeath::RestartAlone:
            return "restart-alone";
        case OnDeath::RebuildChain:
            return "rebuild-chain";
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
    [[nodiscard]] Error obituary(Child& child);
    [[nodiscard]] Status trouble();
    /// Runs handlers until `done`, trouble, or the deadline (true if done).
    template <class Done>
    [[nodiscard]] Result<bool> run_until(SteadyClock::time_point deadline, Done done);
    [[nodiscard]] Status await_state(Child::State state, const char* what);
    void kill_all();
    static void reap_helpers(const Child& child, SteadyClock::time_point deadline);

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

// ---- trouble ----

/// The error of a child that is dead or dying: waits a moment for its exit status and last words.
Error Supervisor::Impl::obituary(Child& child) {
    const auto deadline = SteadyClock::now() + kStoryLimit;
    while (!child.gone() && SteadyClock::now() < deadline) {
        io_.restart();
        io_.run_one_until(deadline);
    }
    return child.obituary();
}

Status Supervisor::Impl::trouble() {
    if (signal_ != 0) {
        return Error{Errc::Cancelled,
                     signal_ == SIGINT ? "interrupted (SIGINT)" : "asked to end (SIGTERM)"};
    }
    if (ending_) return {};
    for (const auto& child : children_) {
        // Only StopRun is implemented (start() saw to that): every death ends the run.
        if (child->in_trouble()) return obituary(*child);
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
                                                ChildLog{options_.last_words, std::move(on_line)},
                                                [this](StageId from, control::Message message) {
                                                    mail_.emplace_back(from, std::move(message));
                                                }));
    Child& child = *children_.back();
    const Status sent = child.send(control::Assign{spec.id, Epoch{1}, spec.name, spec.payload});
    // A child that is gone already has a better story to tell than its socket.
    return sent.ok() ? Status{} : Status{obituary(child)};
}

Child* Supervisor::Impl::find(StageId id) {
    for (const auto& child : children_) {
        if (child->spec().id == id) return child.get();
    }
    return nullptr;
}

Status Supervisor::Impl::await_state(Child::State state, const char* what) {
    const auto reached = [state](const auto& child) { return child->state() >= state; };
    const Result<bool> all = run_until(SteadyClock::now() + options_.start_limit, [&] {
        return std::all_of(children_.begin(), children_.end(), reached);
    });
    if (!all.ok()) return all.error();
    if (all.value()) return {};
    for (const auto& child : children_) {
        if (reached(child)) continue;
        return Error{Errc::PeerGone, child->title() + " " + what + " within " +
                                         std::to_string(options_.start_limit.count()) + " ms" +
                                         child->last_words()};
    }
    return {};
}

Result<std::vector<control::Hello>> Supervisor::Impl::await_hellos() {
    const Status greeted = await_state(Child::State::Greeted, "did not load");
    if (!greeted.ok()) return greeted.error();
    std::vector<control::Hello> hellos;
    for (const auto& child : children_) hellos.push_back(*child->hello());
    return hellos;
}

Result<Wiring> Supervisor::Impl::wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros) {
    std::vector<StageSpec> stages{{kConductor, Epoch{1}, 0}};
    for (const auto& child : children_) stages.push_back({child->spec().id, Epoch{1}, spin_micros});
    Result<WiringPlan> plan = WiringPlan::create(stages, edges);
    if (!plan.ok()) return plan.error();
    plan_ = std::move(plan).value();
    for (const auto& child : children_) {
        Result<Doorbell> bell = plan_->bell_of(child->spec().id);
        if (!bell.ok()) return bell.error();
        child->set_bell(std::move(bell).value());
        const WiringPlan::Letter letter = plan_->letter_for(child->spec().id);
        const Status sent = child->send(letter.wire, letter.files);
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
    const Status sent = child->send(message);
    if (!sent.ok()) return obituary(*child);
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
    for (const auto& child : children_) pids.push_back(child->pid());
    return pids;
}

// ---- ending ----

Status Supervisor::Impl::shutdown() {
    signal_ = 0;               // this is the orderly stop; another signal cuts it short
    Status first = trouble();  // a death that nobody has asked about yet
    ending_ = true;
    for (const auto& child : children_) {
        if (child->gone()) continue;
        // One that cannot be told is killed below.
        (void)child->send(control::Shutdown{}, {}, std::chrono::milliseconds{100});
    }
    const auto gone = [](const auto& child) { return child->gone(); };
    const Result<bool> all = run_until(SteadyClock::now() + options_.shutdown_grace, [&] {
        return std::all_of(children_.begin(), children_.end(), gone);
    });
    for (const auto& child : children_) {
        if (!first.ok()) break;
        if (!child->gone()) {
            first = Error{Errc::PeerGone, child->title() + " did not end within " +
                                              std::to_string(options_.shutdown_grace.count()) +
                                              " ms and was killed"};
        } else if (!child->ended_well()) {
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
        child->kill();
    }
    // SIGKILL needs no cooperation, but a process in the kernel may take its time.
    const auto deadline = SteadyClock::now() + kReapLimit;
    const auto gone = [](const auto& child) { return child->gone(); };
    while (!std::all_of(children_.begin(), children_.end(), gone) &&
           SteadyClock::now() < deadline) {
        io_.restart();
        io_.run_one_until(deadline);
    }
    for (const auto& child : children_) reap_helpers(*child, deadline);
}

/// What a stage had forked is this process's child since the stage is gone (see create()).
void Supervisor::Impl::reap_helpers(const Child& child, SteadyClock::time_point deadline) {
    while (SteadyClock::now() < deadline) {
        const pid_t reaped = ::waitpid(-child.pid(), nullptr, WNOHANG);
        if (reaped < 0 && errno == ECHILD) return;
        if (reaped == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
}

Supervisor::Supervisor(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
Supervisor::~Supervisor() = default;

Result<std::unique_ptr<Supervisor>> Supervisor::create(SupervisorOptions options) {
    // Whatever a dying stage leaves behind becomes a child of this process, which reaps it.
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        return Error{Errc::System,
                     std::string{"prctl(PR_SET_CHILD_SUBREAPER) failed: "} + std::strerror(errno)};
    }
    try {
        return std::unique_ptr<Supervisor>{
            new Supervisor{std::make_unique<Impl>(std::move(options))}};
    } catch (const boost::system::system_error& error) {
        return Error{Errc::System,
                     std::string{"cannot watch signals and children: "} + error.what()};
    }
}
Status Supervisor::start(std::span<const ChildSpec> children) {
    return impl_->start(children);
}
Result<std::vector<control::Hello>> Supervisor::await_hellos() {
    return impl_->await_hellos();
}
Result<Wiring> Supervisor::wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros) {
    return impl_->wire(edges, spin_micros);
}
Status Supervisor::shutdown() {
    return impl_->shutdown();
}
Status Supervisor::send(StageId to, const control::Message& message) {
    return impl_->send(to, message);
}
Status Supervisor::poll(const Deliver& deliver) {
    return impl_->poll(deliver);
}
std::vector<pid_t> Supervisor::pids() const {
    return impl_->pids();
}

}  // namespace paceline
