#include "tests/soak_run/soak_samples.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include "actors/protocol/counters.hpp"
#include "launch/cli/top/top_scan.hpp"
#include "runtime/loop/control_port.hpp"
#include "runtime/observe/stage_telemetry.hpp"

namespace paceline::testing {
namespace {

namespace fs = std::filesystem;

constexpr SlopeBound kMemory{.per_hour = 1.0, .noise = 2.0};       // MiB
constexpr SlopeBound kDescriptors{.per_hour = 1.0, .noise = 8.0};  // and mappings
constexpr SlopeBound kQueues{.per_hour = 1.0, .noise = 24.0};      // pages, batches, requests

/// A line of /proc/PID/status in MiB; nothing if the process is gone.
std::optional<double> status_mib(pid_t pid, std::string_view key) {
    std::ifstream status{fmt::format("/proc/{}/status", pid)};
    for (std::string line; std::getline(status, line);) {
        if (line.rfind(key, 0) == 0) return std::stod(line.substr(key.size())) / 1024.0;
    }
    return std::nullopt;
}

bool is_telemetry(std::string_view text) {
    return text.find(kTelemetryFilePrefix) != std::string_view::npos;
}

/// Descriptors but for those of telemetry blocks; nothing if the process is gone.
std::optional<double> descriptors_of(pid_t pid) {
    std::error_code error;
    double count = 0.0;
    for (fs::directory_iterator entry{fmt::format("/proc/{}/fd", pid), error}, end;
         !error && entry != end; entry.increment(error)) {
        std::error_code closed;
        if (!is_telemetry(fs::read_symlink(entry->path(), closed).native())) count += 1.0;
    }
    if (count == 0.0) return std::nullopt;
    return count;
}

double mappings() {
    std::ifstream maps{"/proc/self/maps"};
    double count = 0.0;
    for (std::string line; std::getline(maps, line);) count += is_telemetry(line) ? 0.0 : 1.0;
    return count;
}

}  // namespace

SoakSamples::SoakSamples(const SoakPlan& plan, const PipelineSession& session)
    : session_{session},
      // A minute has less time to spare than a day.
      warm_up_{std::clamp<SoakClock::duration>(
          plan.length / 10, std::chrono::seconds{3}, std::chrono::minutes{2})},
      every_{std::clamp<SoakClock::duration>(
          plan.length / 200, std::chrono::milliseconds{250}, std::chrono::seconds{2})},
      memory_{"conductor: private memory", "MiB", kMemory},
      shared_{"conductor: shared memory", "MiB", kMemory},
      descriptors_{"conductor: descriptors", "", kDescriptors},
      mappings_{"conductor: mappings", "", kDescriptors},
      pages_{"KV pages of running requests", "", kQueues},
      queued_{"queued batches", "", kQueues},
      requests_{"requests in a stage", "", kQueues} {}

void SoakSamples::tick(SoakClock::time_point now) {
    if (now < next_) return;
    next_ = now + every_;
    const double hours = std::chrono::duration<double, std::ratio<3600>>(now - begun_).count();
    const std::vector<SessionProcess> processes = session_.stages();
    const bool whole = std::all_of(processes.begin(), processes.end(),
                                   [](const SessionProcess& process) { return process.pid != 0; });
    sample_stages(now, hours, whole);
    // What a recovery has open for a moment is not what the pipeline needs.
    if (!whole || now - begun_ < warm_up_) return;
    sample_conductor(hours);
    sample_telemetry(hours);
}

void SoakSamples::sample_conductor(double hours) {
    const pid_t self = ::getpid();
    if (const auto mib = status_mib(self, "RssAnon:")) memory_.slope.add(hours, *mib);
    if (const auto mib = status_mib(self, "RssShmem:")) shared_.slope.add(hours, *mib);
    if (const auto count = descriptors_of(self)) descriptors_.slope.add(hours, *count);
    mappings_.slope.add(hours, mappings());
}

void SoakSamples::sample_stages(SoakClock::time_point now, double hours, bool whole) {
    for (const SessionProcess& process : session_.stages()) {
        Life& life = stages_[process.name];
        if (life.memory.name.empty()) {
            life.memory = {process.name + ": private memory", "MiB", kMemory};
            life.descriptors = {process.name + ": descriptors", "", kDescriptors};
        }
        if (life.pid != process.pid) {
            life.pid = process.pid;
            life.since = now;
            life.memory.slope.cut();
            life.descriptors.slope.cut();
        }
        if (!whole || life.pid == 0 || now - life.since < warm_up_) continue;
        const auto mib = status_mib(life.pid, "RssAnon:");
        const auto count = descriptors_of(life.pid);
        if (!mib || !count) continue;  // it has just died
        life.memory.slope.add(hours, *mib);
        life.descriptors.slope.add(hours, *count);
    }
}

void SoakSamples::sample_telemetry(double hours) {
    double queued = 0.0;
    double requests = 0.0;
    for (const PipelineSample& pipeline : scan_pipelines(::getpid())) {
        for (const StageSample& stage : pipeline.stages) {
            const TelemetrySnapshot& seen = stage.telemetry;
            if (seen.stage == kConductor) continue;
            queued += static_cast<double>(seen.gauge(gauges::kQueueDepth));
            requests = std::max(requests, static_cast<double>(seen.gauge(gauges::kRequests)));
            if (seen.stage == StageId{1})
                pages_.slope.add(hours, static_cast<double>(seen.gauge(gauges::kKvPages)));
        }
    }
    queued_.slope.add(hours, queued);
    requests_.slope.add(hours, requests);
}

std::string SoakSamples::held_at_rest() const {
    std::string held;
    for (const PipelineSample& pipeline : scan_pipelines(::getpid())) {
        for (const StageSample& stage : pipeline.stages) {
            const TelemetrySnapshot& seen = stage.telemetry;
            const auto add = [&](const char* what, Gauge gauge) {
                if (seen.gauge(gauge) == 0) return;
                held += fmt::format("{}{}: {} {}", held.empty() ? "" : "; ", seen.name,
                                    seen.gauge(gauge), what);
            };
            add("queued", gauges::kQueueDepth);
            add("requests", gauges::kRequests);
            if (seen.stage == StageId{1}) add("KV pages", gauges::kKvPages);
        }
    }
    return held;
}

std::vector<SoakFigure> SoakSamples::figures() const {
    std::vector<SoakFigure> all{memory_, shared_, descriptors_, mappings_,
                                pages_,  queued_, requests_};
    for (const auto& [name, life] : stages_) {
        all.push_back(life.memory);
        all.push_back(life.descriptors);
    }
    return all;
}

}  // namespace paceline::testing
