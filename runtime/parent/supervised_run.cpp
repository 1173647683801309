#include "runtime/parent/supervised_run.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <time.h>
#include <utility>

namespace paceline {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSendLimit{10'000};
constexpr std::size_t kRecordsMax = 64;  // incarnations whose telemetry blocks are kept

/// Keeps its telemetry block beyond its death.
void remember(SupervisedRun& run, const SupervisedStage& stage) {
    std::vector<StageRecord>& records = run.records;
    // The conductor's own comes first and stays, and so do those that live.
    if (records.size() >= kRecordsMax) {
        const auto dead =
            std::find_if(records.begin() + 1, records.end(), [&run](const StageRecord& r) {
                return run.stages.current({r.id, r.epoch}) == nullptr;
            });
        if (dead != records.end()) records.erase(dead);
    }
    records.push_back({stage.spec.id, stage.epoch, stage.spec.name, *stage.newest.telemetry});
}

}  // namespace

StageWatch::Nanos monotonic_now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

Micros micros_now() {
    return std::chrono::duration_cast<Micros>(monotonic_now());
}

Status SupervisedRun::start(SupervisedStage& stage) {
    const ProcessSpec& spec = stage.spec;
    JobRecords jobs{};
    if (stage.newest.telemetry)
        jobs = inherited_jobs(stage.newest.telemetry->snapshot(), stage.newest.hung,
                              options.start_limit);
    Result<ShmFile> telemetry =
        StageTelemetry::create(spec.id, stage.epoch, spec.name, options.trace_events, jobs);
    if (!telemetry.ok()) return telemetry.error();
    Result<StageTelemetryView> view = StageTelemetryView::attach(telemetry.value().fd());
    if (!view.ok()) return view.error();
    stage.newest = {.telemetry_file = std::move(telemetry).value(),
                    .telemetry = std::move(view).value(),
                    .watch = StageWatch{options.stop_grace}};
    remember(*this, stage);
    const Status started = node->start(stage.who(), spec, options.command);
    if (!started.ok()) return started;
    const std::vector<int> files{stage.newest.telemetry_file.fd(), memory.board_fd()};
    // If the stage has died already, its exit report is the better error.
    (void)send_to(
        stage, control::Assign{spec.id, stage.epoch, spec.actors, spec.name, spec.payload}, files);
    return {};
}

Status SupervisedRun::send_wire(SupervisedStage& stage) {
    Result<Doorbell> bell = plan->bell_of(stage.spec.id);
    if (!bell.ok()) return bell.error();
    stage.newest.bell = std::move(bell).value();
    WiringPlan::WireMessage<control::Wire> outgoing = plan->wire_message_for(stage.spec.id);
    outgoing.message.hang_limit_ms = static_cast<std::uint32_t>(options.hang_limit.count());
    outgoing.message.link_limit_ms = static_cast<std::uint32_t>(options.link_limit.count());
    return send_to(stage, outgoing.message, outgoing.files);
}

Status SupervisedRun::send_to(SupervisedStage& stage,
                              const control::Message& message,
                              std::span<const int> files,
                              Envelope envelope) {
    const Status sent = node->send(stage.who(), message, files, kSendLimit, envelope);
    if (sent.ok() && stage.newest.bell) stage.newest.bell->announce();
    return sent;
}

void SupervisedRun::report_fault(StageId peer, Epoch peer_epoch, const Error& error) {
    if (!is_running() || peer == kConductor) return;
    const StageId home = plan->home_of(peer);
    recovery->suspect(home, peer_epoch, node->title({home, peer_epoch}) + ": " + error.what,
                      micros_now());
}

Status SupervisedRun::trouble() {
    if (Status interrupted = end.interrupted(); !interrupted.ok()) return interrupted;
    if (phase != Phase::Starting) return {};
    for (SupervisedStage& stage : stages.all()) {
        if (!stage.newest.gone && !stage.newest.failure) continue;
        // Wait a moment for its exit status and last log lines.
        const auto deadline = SteadyClock::now() + std::chrono::milliseconds{500};
        while (!stage.newest.gone && SteadyClock::now() < deadline) node->wait(deadline);
        const Errc code = stage.newest.failure ? stage.newest.failure->code : Errc::PeerGone;
        if (stage.newest.gone) return Error{code, stage.newest.exit_report};
        return Error{code, node->title(stage.who()) + " " + stage.newest.failure->what +
                               node->last_words(stage.who())};
    }
    return {};
}

}  // namespace paceline
