#include "launch/cli/top/top_scan.hpp"

#include <algorithm>
#include <charconv>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <map>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "ipc/transport/owned_fd.hpp"
#include "runtime/loop/control_port.hpp"

namespace paceline {

namespace {

namespace fs = std::filesystem;

std::optional<pid_t> parse_pid(const std::string& text) {
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
    const bool whole = error == std::errc{} && end == text.data() + text.size();
    return whole ? std::optional{pid} : std::nullopt;
}

bool is_mine(const fs::path& folder) {
    struct stat status {};
    return ::stat(folder.c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

/// The telemetry blocks that a process holds open. Empty if it has none, or is gone by now.
std::vector<TelemetrySnapshot> pages_of(const fs::path& process) {
    const std::string prefix = std::string{"/memfd:"} + kTelemetryFilePrefix;
    std::vector<TelemetrySnapshot> telemetry;
    std::error_code error;
    for (fs::directory_iterator entry{process / "fd", error}, end; !error && entry != end;
         entry.increment(error)) {
        std::error_code unreadable;  // closed meanwhile
        if (!fs::read_symlink(entry->path(), unreadable).native().starts_with(prefix)) continue;
        const OwnedFd fd{::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
        if (!fd) continue;
        const Result<StageTelemetryView> view = StageTelemetryView::attach(fd.get());
        if (view.ok()) telemetry.push_back(view.value().snapshot());
    }
    return telemetry;
}

ProcessState state_of(std::uint32_t pid, const std::string& proc) {
    std::ifstream file{fmt::format("{}/{}/stat", proc, pid)};
    std::string text;
    std::getline(file, text);
    // "pid (name) S ...", and the name may hold anything.
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= text.size()) return ProcessState::Gone;
    const char state = text[name_end + 2];
    if (state == 'Z' || state == 'X') return ProcessState::Gone;
    return state == 'T' || state == 't' ? ProcessState::Stopped : ProcessState::Alive;
}

std::optional<PipelineSample> sample(pid_t pid, const std::string& proc) {
    std::map<StageId, TelemetrySnapshot> newest;
    bool conducts = false;
    for (TelemetrySnapshot& telemetry : pages_of(fs::path{proc} / std::to_string(pid))) {
        // A stage that is just starting holds telemetry blocks too, but not a conductor's with its
        // own pid.
        conducts = conducts || (telemetry.stage == kConductor &&
                                telemetry.pid == static_cast<std::uint32_t>(pid));
        const auto [entry, is_new] = newest.try_emplace(telemetry.stage, telemetry);
        if (!is_new && entry->second.epoch < telemetry.epoch) entry->second = std::move(telemetry);
    }
    if (!conducts) return std::nullopt;
    PipelineSample pipeline;
    pipeline.conductor = pid;
    for (auto& [stage, telemetry] : newest) {
        // No pid: its memory is there, its process is only just being started.
        const bool unborn = telemetry.pid == 0 && telemetry.activity == Activity::Starting;
        const ProcessState state = unborn ? ProcessState::Alive : state_of(telemetry.pid, proc);
        pipeline.stages.push_back({std::move(telemetry), state});
    }
    pipeline.at = std::chrono::steady_clock::now().time_since_epoch();
    return pipeline;
}

}  // namespace

std::vector<PipelineSample> scan_pipelines(std::optional<pid_t> only, const std::string& proc) {
    std::vector<PipelineSample> found;
    std::error_code error;
    for (fs::directory_iterator entry{proc, error}, end; !error && entry != end;
         entry.increment(error)) {
        const std::optional<pid_t> pid = parse_pid(entry->path().filename().native());
        if (!pid || (only && *only != *pid) || !is_mine(entry->path())) continue;
        if (std::optional<PipelineSample> pipeline = sample(*pid, proc)) {
            found.push_back(std::move(*pipeline));
        }
    }
    std::sort(found.begin(), found.end(), [](const PipelineSample& a, const PipelineSample& b) {
        return a.conductor < b.conductor;
    });
    return found;
}

}  // namespace paceline
