#include "runtime/parent/supervisor.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <signal.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "runtime/parent/affinity.hpp"
#include "runtime/parent/local_node.hpp"
#include "runtime/parent/supervisor_impl.hpp"

namespace paceline {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Between two looks while something is waited for, and from when on a look counts as late.
constexpr std::chrono::milliseconds kLookInterval{250};
constexpr std::chrono::milliseconds kLateLook{1'000};
constexpr std::size_t kRecordsMax = 64;  // incarnations whose telemetry blocks are kept

}  // namespace

// ---- starting ----

Status Supervisor::Impl::open() {
    NodeEvents events;
    events.on_message = [this](Incarnation who, ControlSocket::Received received) {
        on_message(who, std::move(received));
    };
    events.on_silence = [this](Incarnation who, const Error& error) { on_silence(who, error); };
    events.on_exit = [this](Incarnation who, bool well, const std::string& how) {
        on_exit(who, well, how);
    };
    events.on_flushed = [this](Incarnation who) {
        Stage* stage = current(who);
        if (stage != nullptr && stage->bell) stage->bell->announce();
    };
    events.on_stopped = [this](Incarnation who, bool stopped) {
        if (Stage* stage = current(who)) on_stopped(*stage, stopped);
    };
    events.on_signal = [this](int signal) { signal_ = signal; };
    if (options_.on_log) {
        events.on_line = [this](Incarnation who, std::string_view line) {
            const Stage* stage = find(who.id);
            options_.on_log(stage != nullptr ? stage->spec.name : "", line);
        };
    }
    Result<std::unique_ptr<NodeAgent>> node =
        make_local_node(std::move(events), options_.catch_signals);
    if (!node.ok()) return node.error();
    node_ = std::move(node).value();
    Result<ShmFile> board = CancelBoard::create();
    if (!board.ok()) return board.error();
    board_file_ = std::move(board).value();
    return {};
}

Status Supervisor::Impl::start(std::span<const ProcessSpec> processes) {
    PACE_CHECK(stages_.empty(), "start() is called once");
    stages_.reserve(processes.size());
    for (const ProcessSpec& spec : processes) {
        if (spec.id == kConductor || find(spec.id) != nullptr) {
            return Error{Errc::BadArgument,
                         fmt::format("stage '{}': number {} is taken", spec.name, spec.id.value)};
        }
        Stage& stage =
            stages_.emplace_back(Stage{.spec = spec, .watch = StageWatch{options_.stop_grace}});
        if (stage.spec.actors.empty()) stage.spec.actors = {spec.id};
        if (const Status started = start_one(stage); !started.ok()) return started;
    }
    return {};
}

Status Supervisor::Impl::start_one(Stage& stage) {
    const ProcessSpec& spec = stage.spec;
    JobRecords jobs{};
    if (stage.telemetry)
        jobs = inherited_jobs(stage.telemetry->snapshot(), stage.hung, options_.start_limit);
    Result<ShmFile> telemetry =
        StageTelemetry::create(spec.id, stage.epoch, spec.name, options_.trace_events, jobs);
    if (!telemetry.ok()) return telemetry.error();
    Result<StageTelemetryView> view = StageTelemetryView::attach(telemetry.value().fd());
    if (!view.ok()) return view.error();
    stage.telemetry_file = std::move(telemetry).value();
    stage.telemetry = std::move(view).value();
    stage.watch = StageWatch{options_.stop_grace};
    stage.state = State::Loading;
    stage.blame.reset();
    stage.hung = false;
    stage.gone = false;
    remember(stage);
    const Status started = node_->start(stage.who(), spec, options_.command);
    if (!started.ok()) return started;
    const std::vector<int> files{stage.telemetry_file.fd(), board_file_.fd()};
    // If the stage has died already, its exit report is the better error.
    (void)send_to(
        stage, control::Assign{spec.id, stage.epoch, spec.actors, spec.name, spec.payload}, files);
    return {};
}

void Supervisor::Impl::remember(const Stage& stage) {
    // The conductor's own comes first and stays, and so do those that live.
    if (records_.size() >= kRecordsMax) {
        const auto dead =
            std::find_if(records_.begin() + 1, records_.end(), [this](const StageRecord& r) {
                return current({r.id, r.epoch}) == nullptr;
            });
        if (dead != records_.end()) records_.erase(dead);
    }
    records_.push_back({stage.spec.id, stage.epoch, stage.spec.name, *stage.telemetry});
}

Status Supervisor::Impl::trouble() {
    if (signal_ != 0) {
        return Error{Errc::Cancelled,
                     signal_ == SIGINT ? "interrupted (SIGINT)" : "asked to end (SIGTERM)"};
    }
    if (phase_ != Phase::Starting) return {};
    for (Stage& stage : stages_) {
        if (!stage.gone && !stage.failure) continue;
        // Wait a moment for its exit status and last log lines.
        const auto deadline = SteadyClock::now() + std::chrono::milliseconds{500};
        while (!stage.gone && SteadyClock::now() < deadline) node_->wait(deadline);
        const Errc code = stage.failure ? stage.failure->code : Errc::PeerGone;
        if (stage.gone) return Error{code, stage.exit_report};
        return Error{code, node_->title(stage.who()) + " " + stage.failure->what +
                               node_->last_words(stage.who())};
    }
    return {};
}

/// The deadline moves with a pause of the whole machine, which shows as a look that comes late; but not for
/// ever, for every look is late where a callback takes long.
template <class Done>
Result<bool> Supervisor::Impl::run_until(SteadyClock::time_point deadline, Done done) {
    node_->poll();
    std::uint32_t pauses = 0;
    for (SteadyClock::time_point looked_at = SteadyClock::now();;) {
        const Status status = trouble();
        if (!status.ok()) return status.error();
        if (done()) return true;
        const SteadyClock::time_point now = SteadyClock::now();
        const auto gap = now - std::exchange(looked_at, now);
        if (gap > kLateLook && pauses++ < kPausesMax) deadline += gap - kLookInterval;
        if (now >= deadline) return false;
        node_->wait(std::min(deadline, now + kLookInterval));
    }
}

Status Supervisor::Impl::await_state(State state, const char* what) {
    const auto reached = [state](const Stage& stage) { return stage.state >= state; };
    const Result<bool> all = run_until(SteadyClock::now() + options_.start_limit, [&] {
        return std::all_of(stages_.begin(), stages_.end(), reached);
    });
    if (!all.ok()) return all.error();
    if (all.value()) return {};
    for (const Stage& stage : stages_) {
        if (reached(stage)) continue;
        return Error{Errc::PeerGone,
                     fmt::format("{} {} within {} ms{}", node_->title(stage.who()), what,
                                 options_.start_limit.count(), node_->last_words(stage.who()))};
    }
    return {};
}

Result<std::vector<control::Hello>> Supervisor::Impl::await_hellos() {
    const Status greeted = await_state(State::Greeted, "did not load");
    if (!greeted.ok()) return greeted.error();
    std::vector<control::Hello> hellos;
    for (const Stage& stage : stages_) hellos.push_back(*stage.hello);
    return hellos;
}

Result<Wiring> Supervisor::Impl::wire(std::span<const EdgeSpec> edges, std::uint32_t spin_micros) {
    std::vector<ProcessSpec> processes{{.id = kConductor, .actors = {kConductor}}};
    std::vector<Recovery::Member> members;
    std::vector<std::vector<int>> cores;
    for (const Stage& stage : stages_) cores.push_back(stage.spec.cores);
    const std::vector<bool> shared = cores_shared(cores);
    for (std::size_t i = 0; i < stages_.size(); ++i) {
        Stage& stage = stages_[i];
        stage.spec.spin_micros = shared[i] ? 0 : spin_micros;
        processes.push_back(stage.spec);
        members.push_back({stage.spec.id, stage.spec.name, stage.spec.on_death});
    }
    Result<WiringPlan> plan =
        WiringPlan::create(std::move(processes), {edges.begin(), edges.end()}, options_.checksums);
    if (!plan.ok()) return plan.error();
    plan_ = std::move(plan).value();
    if (const Status wired = plan_->wire(kConductor, Epoch{1}); !wired.ok()) return wired.error();
    for (const Stage& stage : stages_) {
        const Status wired = plan_->wire(stage.spec.id, stage.epoch);
        if (!wired.ok()) return wired.error();
    }
    for (Stage& stage : stages_) {
        if (const Status sent = send_wire(stage); !sent.ok()) return sent.error();
    }
    const Status ready = await_state(State::Ready, "did not attach to its channels");
    if (!ready.ok()) return ready.error();
    recovery_.emplace(std::move(members), options_.restarts);
    phase_ = Phase::Running;
    return own_wiring();
}

Result<Wiring> Supervisor::Impl::own_wiring() {
    Result<Doorbell> bell = plan_->bell_of(kConductor);
    if (!bell.ok()) return bell.error();
    Result<Doorbell> bell_again = plan_->bell_of(kConductor);
    if (!bell_again.ok()) return bell_again.error();
    const Status wakes = node_->wake_with(std::move(bell_again).value());
    if (!wakes.ok()) return wakes.error();
    Result<AttachedEdges> edges = plan_->attach(kConductor);
    if (!edges.ok()) return edges.error();
    Result<StageTelemetry> telemetry = own_page();
    if (!telemetry.ok()) return telemetry.error();
    own_telemetry_ = std::make_shared<StageTelemetry>(std::move(telemetry).value());
    Result<ShmRegion> board_memory = ShmRegion::attach(board_file_.fd(), 1);
    if (!board_memory.ok()) return board_memory.error();
    Result<CancelBoard> board = CancelBoard::attach(std::move(board_memory).value());
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
                  .telemetry = own_telemetry_,
                  .board = std::make_shared<CancelBoard>(std::move(board).value())};
}

Result<StageTelemetry> Supervisor::Impl::own_page() {
    Result<ShmFile> file =
        StageTelemetry::create(kConductor, Epoch{1}, "conductor", options_.trace_events);
    if (!file.ok()) return file.error();
    own_telemetry_file_ = std::move(file).value();
    Result<StageTelemetryView> view = StageTelemetryView::attach(own_telemetry_file_.fd());
    if (!view.ok()) return view.error();
    records_.insert(records_.begin(), {kConductor, Epoch{1}, "conductor", view.value()});
    Result<ShmRegion> memory = ShmRegion::attach(own_telemetry_file_.fd(), 1);
    if (!memory.ok()) return memory.error();
    return StageTelemetry::attach(std::move(memory).value());
}

Status Supervisor::Impl::send_wire(Stage& stage) {
    Result<Doorbell> bell = plan_->bell_of(stage.spec.id);
    if (!bell.ok()) return bell.error();
    stage.bell = std::move(bell).value();
    WiringPlan::WireMessage<control::Wire> outgoing = plan_->wire_message_for(stage.spec.id);
    outgoing.message.hang_limit_ms = static_cast<std::uint32_t>(options_.hang_limit.count());
    outgoing.message.link_limit_ms = static_cast<std::uint32_t>(options_.link_limit.count());
    return send_to(stage, outgoing.message, outgoing.files);
}

// ---- ending ----

Status Supervisor::Impl::shutdown() {
    signal_ = 0;  // this is the orderly stop; another signal cuts it short
    Status first = end_ ? Status{*end_} : trouble();  // what has not been reported yet
    std::vector<Stage*> asked;
    for (Stage& stage : stages_) {
        const bool works =
            !stage.gone && (!recovery_ || recovery_->health_of(stage.spec.id) == StageHealth::Up);
        if (works) asked.push_back(&stage);
    }
    phase_ = Phase::Ending;
    // A stage that the message does not reach is killed below.
    for (Stage* stage : asked) (void)send_to(*stage, control::Shutdown{});
    const auto gone = [](const Stage* stage) { return stage->gone; };
    const Result<bool> all = run_until(SteadyClock::now() + options_.shutdown_grace, [&] {
        return std::all_of(asked.begin(), asked.end(), gone);
    });
    for (const Stage* stage : asked) {
        if (!first.ok()) break;
        if (!stage->gone) {
            first = Error{Errc::PeerGone,
                          fmt::format("{} did not end within {} ms and was killed",
                                      node_->title(stage->who()), options_.shutdown_grace.count())};
        } else if (!stage->ended_well) {
            first = Error{Errc::PeerGone, stage->exit_report};
        }
    }
    node_.reset();  // kills and reaps
    if (first.ok() && !all.ok()) return all.error();
    return first;
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
    return impl_->report_fault(peer, peer_epoch, error);
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
std::vector<StageRecord> Supervisor::records() const {
    return impl_->records();
}

}  // namespace paceline
