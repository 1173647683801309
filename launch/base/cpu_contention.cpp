#include "launch/base/cpu_contention.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <sstream>
#include <unistd.h>

namespace paceline {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::milliseconds kLeastTime{1000};
constexpr double kNoticed = 0.25;  // of a core: below it a run is hardly slower

std::string text_of(const fs::path& path) {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
}

std::vector<int> allowed_cores() {
    std::vector<int> cores;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
    }
    return cores;
}

double ticks_per_second() {
    return static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// Of this process and of the children that live.
double own_seconds() {
    std::vector<std::string> processes{"self"};
    std::error_code error;
    for (const fs::directory_entry& thread : fs::directory_iterator{"/proc/self/task", error}) {
        std::istringstream children{text_of(thread.path() / "children")};
        for (std::string child; children >> child;) processes.push_back(child);
    }
    double all = 0.0;
    for (const std::string& process : processes) {
        all += process_seconds(text_of(fs::path{"/proc"} / process / "stat"), ticks_per_second())
                   .value_or(0.0);
    }
    return all;
}

}  // namespace

std::optional<double> busy_seconds(std::string_view stat,
                                   const std::vector<int>& cores,
                                   double ticks_per_second) {
    std::istringstream lines{std::string{stat}};
    std::size_t found = 0;
    double ticks = 0.0;
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("cpu") || line.starts_with("cpu ")) continue;
        int core = -1;
        (void)std::from_chars(line.data() + 3, line.data() + line.size(), core);
        if (std::find(cores.begin(), cores.end(), core) == cores.end()) continue;
        // user nice system idle iowait irq softirq steal; guests are part of user.
        std::istringstream fields{line.substr(line.find(' ') + 1)};
        std::array<double, 8> values{};
        for (double& value : values) fields >> value;
        if (fields.fail()) return std::nullopt;
        ticks += values[0] + values[1] + values[2] + values[5] + values[6] + values[7];
        ++found;
    }
    if (found != cores.size() || cores.empty()) return std::nullopt;
    return ticks / ticks_per_second;
}

std::optional<double> process_seconds(std::string_view stat, double ticks_per_second) {
    // The name, in parentheses, may hold anything.
    const std::size_t name_end = stat.rfind(')');
    if (name_end == std::string_view::npos) return std::nullopt;
    std::istringstream fields{std::string{stat.substr(name_end + 1)}};
    std::string skipped;
    for (int field = 3; field < 14; ++field) fields >> skipped;
    double user = 0.0;
    double system = 0.0;
    fields >> user >> system;
    if (fields.fail()) return std::nullopt;
    return (user + system) / ticks_per_second;
}

CpuContention::CpuContention() : cores_{allowed_cores()}, begin_{sample()} {}

CpuContention::Sample CpuContention::sample() const {
    return {.at = std::chrono::steady_clock::now(),
            .busy = busy_seconds(text_of("/proc/stat"), cores_, ticks_per_second()),
            .own = own_seconds()};
}

std::optional<double> CpuContention::cores() const {
    const Sample now = sample();
    const std::chrono::duration<double> passed = now.at - begin_.at;
    if (passed < kLeastTime || !now.busy || !begin_.busy) return std::nullopt;
    const double others = (*now.busy - *begin_.busy) - (now.own - begin_.own);
    return std::max(others, 0.0) / passed.count();
}

std::string contention_note(double cores, int usable, bool stages) {
    if (cores < kNoticed) return {};
    const char* help = stages ? "stages on cores of their own (`cores` in a --config file) help"
                              : "fewer threads (-t) help";
    return fmt::format(
        "other processes took {:.1f} of the {} cores, and threads waited for them; {}", cores,
        usable, help);
}

}  // namespace paceline
