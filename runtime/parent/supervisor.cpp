#include "runtime/parent/supervisor.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "runtime/parent/affinity.hpp"
#include "runtime/parent/hang_check.hpp"
#include "runtime/parent/local_node.hpp"
#include "runtime/parent/recovery_commands.hpp"
#include "runtime/parent/stage_events.hpp"

namespace paceline {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Between two looks while something is waited for, and from when on a look counts as late.
constexpr std::chrono::milliseconds kLookInterval{250};
constexpr std::chrono::milliseconds kLateLook{1'000};
/// How long figures of other machines are waited for.
constexpr std::chrono::milliseconds kFiguresLimit{1'000};

}  // namespace

/// Starts, wires and ends the stages, and polls while the run goes on.
class Supervisor::Impl {
public:
    explicit Impl(SupervisorOptions options) : run_{std::move(options)} {
        run_.options.restarts.start_limit = run_.options.start_limit;
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    ~Impl() { run_.node.reset(); }  // its events reach the other parts

    [[nodiscard]] Status open();
    [[nodiscard]] Status start(std::span<const ProcessSpec> processes);
    [[nodiscard]] Result<std::vector<control::Hello>> await_hellos();
    [[nodiscard]] Result<Wiring> wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros);
    [[nodiscard]] Status shutdown();
    [[nodiscard]] Status send(Envelope envelope, const control::Message& message);
    [[nodiscard]] Status poll(const Deliver& deliver);
    void report_fault(StageId peer, Epoch peer_epoch, const Error& error) {
        run_.report_fault(peer, peer_epoch, error);
    }
    void excuse_loss(StageId peer);
    [[nodiscard]] std::vector<pid_t> pids() const;
    [[nodiscard]] StageHealth health_of(StageId id) const;
    [[nodiscard]] int pin_error() const { return run_.pin_error; }
    void refresh_records();
    [[nodiscard]] const std::vector<StageRecord>& records() const { return run_.records; }

private:
    using Stage = SupervisedStage;
    using State = StageIncarnation::State;
    using Phase = SupervisedRun::Phase;

    [[nodiscard]] Status await_state(State state, const char* what);
    [[nodiscard]] Result<Wiring> own_wiring();
    /// Handles events until `done`, trouble, or the deadline (true if done).
    template <class Done>
    [[nodiscard]] Result<bool> run_until(NodeAgent::Deadline deadline, Done done);

    SupervisedRun run_;
    HangCheck hang_check_{run_};
    StageEvents events_{run_, hang_check_};
    RecoveryCommands commands_{run_};
};

// ---- starting ----

Status Supervisor::Impl::open() {
    const auto& make = run_.options.make_node;
    Result<std::unique_ptr<NodeAgent>> node =
        make ? make(events_.handlers())
             : make_local_node(events_.handlers(), run_.options.catch_signals);
    if (!node.ok()) return node.error();
    run_.node = std::move(node).value();
    return run_.memory.open();
}

Status Supervisor::Impl::start(std::span<const ProcessSpec> processes) {
    PACE_CHECK(run_.stages.all().empty(), "start() is called once");
    run_.stages.reserve(processes.size());
    for (const ProcessSpec& spec : processes) {
        if (spec.id == kConductor || run_.stages.find(spec.id) != nullptr) {
            return Error{Errc::BadArgument,
                         fmt::format("stage '{}': number {} is taken", spec.name, spec.id.value)};
        }
        Stage& stage = run_.stages.add(Stage{.spec = spec});
        if (stage.spec.actors.empty()) stage.spec.actors = {spec.id};
        if (const Status started = run_.start(stage); !started.ok()) return started;
    }
    return {};
}

/// The deadline moves with a pause of the whole machine, which shows as a look that comes late; but
/// not for ever, for every look is late where a callback takes long.
template <class Done>
Result<bool> Supervisor::Impl::run_until(SteadyClock::time_point deadline, Done done) {
    run_.node->poll();
    std::uint32_t pauses = 0;
    for (SteadyClock::time_point looked_at = SteadyClock::now();;) {
        const Status status = run_.trouble();
        if (!status.ok()) return status.error();
        if (done()) return true;
        const SteadyClock::time_point now = SteadyClock::now();
        const auto gap = now - std::exchange(looked_at, now);
        if (gap > kLateLook && pauses++ < kPausesMax) deadline += gap - kLookInterval;
        if (now >= deadline) return false;
        run_.node->wait(std::min(deadline, now + kLookInterval));
    }
}

Status Supervisor::Impl::await_state(State state, const char* what) {
    const auto reached = [state](const Stage& stage) { return stage.newest.state >= state; };
    const Result<bool> all = run_until(SteadyClock::now() + run_.options.start_limit, [&] {
        return std::all_of(run_.stages.all().begin(), run_.stages.all().end(), reached);
    });
    if (!all.ok()) return all.error();
    if (all.value()) return {};
    for (const Stage& stage : run_.stages.all()) {
        if (reached(stage)) continue;
        return Error{
            Errc::PeerGone,
            fmt::format("{} {} within {} ms{}", run_.node->title(stage.who()), what,
                        run_.options.start_limit.count(), run_.node->last_words(stage.who()))};
    }
    return {};
}

Result<std::vector<control::Hello>> Supervisor::Impl::await_hellos() {
    const Status greeted = await_state(State::Greeted, "did not load");
    if (!greeted.ok()) return greeted.error();
    std::vector<control::Hello> hellos;
    for (const Stage& stage : run_.stages.all()) hellos.push_back(*stage.hello);
    return hellos;
}

Result<Wiring> Supervisor::Impl::wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros) {
    std::vector<ProcessSpec> processes{{.id = kConductor, .actors = {kConductor}}};
    std::vector<Recovery::Member> members;
    std::vector<std::vector<int>> cores;
    // One that could not be pinned runs on any core, and there are more of its kind.
    for (const Stage& stage : run_.stages.all())
        cores.push_back(run_.pin_error == 0 ? stage.spec.cores : std::vector<int>{});
    const std::vector<bool> shared = cores_shared(cores);
    for (std::size_t i = 0; i < run_.stages.all().size(); ++i) {
        Stage& stage = run_.stages.all()[i];
        stage.spec.spin_micros = shared[i] ? 0 : spin_micros;
        processes.push_back(stage.spec);
        members.push_back({stage.spec.id, stage.spec.name, stage.spec.on_death});
    }
    Result<WiringPlan> plan = WiringPlan::create(std::move(processes), {edges.begin(), edges.end()},
                                                 run_.options.checksums);
    if (!plan.ok()) return plan.error();
    run_.plan = std::move(plan).value();
    if (const Status wired = run_.plan->wire(kConductor, Epoch{1}); !wired.ok())
        return wired.error();
    for (const Stage& stage : run_.stages.all()) {
        const Status wired = run_.plan->wire(stage.spec.id, stage.epoch);
        if (!wired.ok()) return wired.error();
    }
    for (Stage& stage : run_.stages.all()) {
        if (const Status sent = run_.send_wire(stage); !sent.ok()) return sent.error();
    }
    const Status ready = await_state(State::Ready, "did not attach to its channels");
    if (!ready.ok()) return ready.error();
    run_.recovery.emplace(std::move(members), run_.options.restarts);
    run_.phase = Phase::Running;
    return own_wiring();
}

Result<Wiring> Supervisor::Impl::own_wiring() {
    Result<Doorbell> bell = run_.plan->bell_of(kConductor);
    if (!bell.ok()) return bell.error();
    const Status wakes = run_.node->wake_with([this] { return run_.plan->bell_of(kConductor); });
    if (!wakes.ok()) return wakes.error();
    Result<AttachedEdges> edges = run_.plan->attach(kConductor);
    if (!edges.ok()) return edges.error();
    const Result<StageTelemetryView> view = run_.memory.open_telemetry(run_.options.trace_events);
    if (!view.ok()) return view.error();
    run_.records.insert(run_.records.begin(), {kConductor, Epoch{1}, "conductor", view.value()});
    Result<std::shared_ptr<CancelBoard>> board = run_.memory.map_board();
    if (!board.ok()) return board.error();
    return Wiring{.self = kConductor,
                  .actors = {kConductor},
                  .epoch = Epoch{1},
                  .spin_micros = 0,
                  .bell = std::move(bell).value(),
                  .hang_limit_ms = 0,
                  .link_limit_ms = 0,
                  .out = std::move(edges.value().out),
                  .in = std::move(edges.value().in),
                  .absent = {},
                  .telemetry = run_.memory.telemetry(),
                  .board = std::move(board).value()};
}

// ---- ending ----

Status Supervisor::Impl::shutdown() {
    run_.end.forget_signal();
    Status first = run_.end.given_up();  // what has not been reported yet
    if (first.ok()) first = run_.trouble();
    std::vector<Stage*> asked;
    for (Stage& stage : run_.stages.all()) {
        const bool works =
            !stage.newest.gone &&
            (!run_.recovery || run_.recovery->health_of(stage.spec.id) == StageHealth::Up);
        if (works) asked.push_back(&stage);
    }
    run_.phase = Phase::Ending;
    // A stage that the message does not reach is killed below.
    for (Stage* stage : asked) (void)run_.send_to(*stage, control::Shutdown{});
    const auto gone = [](const Stage* stage) { return stage->newest.gone; };
    const Result<bool> all = run_until(SteadyClock::now() + run_.options.shutdown_grace, [&] {
        return std::all_of(asked.begin(), asked.end(), gone);
    });
    for (const Stage* stage : asked) {
        if (!first.ok()) break;
        if (!stage->newest.gone) {
            first = Error{Errc::PeerGone, fmt::format("{} did not end within {} ms and was killed",
                                                      run_.node->title(stage->who()),
                                                      run_.options.shutdown_grace.count())};
        } else if (!stage->newest.ended_well) {
            first = Error{Errc::PeerGone, stage->newest.exit_report};
        }
    }
    run_.node.reset();  // kills and reaps
    if (first.ok() && !all.ok()) return all.error();
    return first;
}

// ---- running ----

Status Supervisor::Impl::send(Envelope envelope, const control::Message& message) {
    Stage* stage = run_.stages.find(run_.plan->home_of(envelope.to));
    PACE_CHECK(stage != nullptr, "a control message to a stage that was not started");
    // A stage that is not Up yet expects other messages first, and gets this one when it has
    // joined.
    if (health_of(stage->spec.id) != StageHealth::Up) return {};
    // If the message cannot be sent the stage is lost or about to be, and does not need it.
    (void)run_.send_to(*stage, message, {}, envelope);
    return {};
}

Status Supervisor::Impl::poll(const Deliver& deliver) {
    const bool running = run_.is_running();
    hang_check_.note_pause();
    run_.node->poll();
    if (running) {
        hang_check_.look();
        // The time first: a pause between the two must not let a limit pass.
        const Micros now = micros_now();
        hang_check_.note_pause();
        run_.recovery->tick(now);
        commands_.carry_out_all();
    }
    while (!run_.events.empty()) {
        PortEvent event = std::move(run_.events.front());
        run_.events.pop_front();
        deliver(std::move(event));
    }
    const Status given_up = run_.end.given_up();
    return given_up.ok() ? run_.trouble() : given_up;
}

void Supervisor::Impl::refresh_records() {
    if (!run_.node) return;
    run_.node->ask_figures();
    if (run_.node->has_figures()) return;
    // A run that is over has what it has.
    (void)run_until(SteadyClock::now() + kFiguresLimit, [&] { return run_.node->has_figures(); });
}

void Supervisor::Impl::excuse_loss(StageId peer) {
    if (run_.recovery) run_.recovery->excuse(run_.plan->home_of(peer));
}

std::vector<pid_t> Supervisor::Impl::pids() const {
    std::vector<pid_t> pids;
    for (const Stage& stage : run_.stages.all())
        pids.push_back(run_.node ? run_.node->pid(stage.who()) : 0);
    return pids;
}

StageHealth Supervisor::Impl::health_of(StageId id) const {
    return run_.recovery ? run_.recovery->health_of(id) : StageHealth::Loading;
}

Supervisor::Supervisor(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
Supervisor::~Supervisor() = default;

Result<std::unique_ptr<Supervisor>> Supervisor::create(SupervisorOptions options) {
    auto impl = std::make_unique<Impl>(std::move(options));
    if (const Status opened = impl->open(); !opened.ok()) return opened.error();
    return std::unique_ptr<Supervisor>{new Supervisor{std::move(impl)}};
}
Status Supervisor::start(std::span<const ProcessSpec> processes) {
    return impl_->start(processes);
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
Status Supervisor::send(Envelope envelope, const control::Message& message) {
    return impl_->send(envelope, message);
}
Status Supervisor::poll(const Deliver& deliver) {
    return impl_->poll(deliver);
}
Status Supervisor::report_fault(StageId peer, Epoch peer_epoch, const Error& error) {
    impl_->report_fault(peer, peer_epoch, error);
    return {};
}
void Supervisor::excuse_loss(StageId peer) {
    impl_->excuse_loss(peer);
}
Status Supervisor::wired(StageId /*peer*/, Epoch /*peer_epoch*/) {
    return {};  // the conductor's own ends are attached before any stage gets its channels
}
std::vector<pid_t> Supervisor::pids() const {
    return impl_->pids();
}
StageHealth Supervisor::health_of(StageId id) const {
    return impl_->health_of(id);
}
int Supervisor::pin_error() const {
    return impl_->pin_error();
}
void Supervisor::refresh_records() {
    impl_->refresh_records();
}
std::vector<StageRecord> Supervisor::records() const {
    return impl_->records();
}

}  // namespace paceline
