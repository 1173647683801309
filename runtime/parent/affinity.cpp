#include "runtime/parent/affinity.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fmt/core.h>
#include <numeric>
#include <sched.h>
#include <set>
#include <unistd.h>

#include "ipc/base/denied_call.hpp"
#include "runtime/parent/own_cgroups.hpp"

namespace paceline {
namespace {

constexpr int kCoreMax = 1 << 14;
// A process with a core of its own waits for the length of its neighbours' steps: a wake-up costs
// 15 us and more, twice per token and segment. After that it sleeps: nothing is being decoded.
constexpr std::uint32_t kSpinMicros = 5'000;

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    return text;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

int cores_online() {
    return static_cast<int>(std::max<long>(1, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

/// Where the call is denied: all that are online.
Result<std::vector<int>> affinity_cores() {
    // The mask may be longer than cpu_set_t on a large machine: ask until it fits.
    for (int count = 1024; count <= kCoreMax; count *= 2) {
        cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(count));
        const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(count));
        const int failed = ::sched_getaffinity(0, bytes, set);
        std::vector<int> cores;
        for (int core = 0; failed == 0 && core < count; ++core) {
            if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, set)) cores.push_back(core);
        }
        CPU_FREE(set);
        if (failed == 0) return cores;
        if (errno != EINVAL) break;
    }
    if (is_denied(errno)) {
        std::vector<int> all(static_cast<std::size_t>(cores_online()));
        std::iota(all.begin(), all.end(), 0);
        return all;
    }
    return Error{Errc::System, std::string{"sched_getaffinity failed: "} + std::strerror(errno)};
}

/// The tightest of two quotas, where "nothing" is no limit.
std::optional<double> tighter(std::optional<double> a, std::optional<double> b) {
    if (!a) return b;
    return b ? std::min(*a, *b) : a;
}

std::optional<double> quota_v1(const std::string& folder) {
    const auto quota = read_kernel_file(folder + "/cpu.cfs_quota_us");
    const auto period = read_kernel_file(folder + "/cpu.cfs_period_us");
    if (!quota || !period) return std::nullopt;
    const auto time = whole_number(trimmed(*quota));
    const auto every = whole_number(trimmed(*period));
    if (!time || !every || *time <= 0 || *every <= 0) return std::nullopt;
    return static_cast<double>(*time) / static_cast<double>(*every);
}

std::optional<double> quota_v2(const std::string& folder) {
    const auto text = read_kernel_file(folder + "/cpu.max");
    if (!text) return std::nullopt;
    const Result<std::optional<double>> quota = parse_cpu_max(*text);
    return quota.ok() ? quota.value() : std::nullopt;
}

/// The tightest quota of `group` and of every group above it below `root`.
template <class Read>
std::optional<double> quota_up_to(const std::string& root, const std::string& group, Read read) {
    std::optional<double> quota;
    for (const std::string& path : with_groups_above(group))
        quota = tighter(quota, read(root + path));
    return quota;
}

std::optional<double> cgroup_quota() {
    std::optional<double> quota;
    for (const OwnCgroup& group : own_cgroups()) {
        if (group.is_version_2()) {
            quota = tighter(quota, quota_up_to("/sys/fs/cgroup", group.path, quota_v2));
            quota = tighter(quota, quota_up_to("/sys/fs/cgroup/unified", group.path, quota_v2));
        } else if (group.has("cpu")) {
            quota = tighter(quota, quota_up_to("/sys/fs/cgroup/cpu", group.path, quota_v1));
            quota = tighter(quota, quota_up_to("/sys/fs/cgroup/cpu,cpuacct", group.path, quota_v1));
        }
    }
    return quota;
}

std::vector<int> siblings_of(int core) {
    const auto text = read_kernel_file(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", core));
    if (!text) return {core};
    Result<std::vector<int>> cores = parse_core_list(trimmed(*text));
    return cores.ok() ? std::move(cores).value() : std::vector<int>{core};
}

}  // namespace

Result<std::vector<int>> parse_core_list(std::string_view text) {
    const Error bad{Errc::BadArgument,
                    "'" + std::string{text} + "' is not a list of cores such as 0-3,8"};
    std::set<int> cores;
    std::string_view rest = trimmed(text);
    if (rest.empty()) return bad;
    while (true) {
        const std::string_view part = trimmed(rest.substr(0, rest.find(',')));
        const std::size_t dash = part.find('-');
        const auto first = whole_number(part.substr(0, dash));
        const auto last =
            dash == std::string_view::npos ? first : whole_number(part.substr(dash + 1));
        if (!first || !last || *first < 0 || *last < *first || *last >= kCoreMax) return bad;
        for (auto core = static_cast<int>(*first); core <= *last; ++core) cores.insert(core);
        if (rest.find(',') == std::string_view::npos) break;
        rest.remove_prefix(rest.find(',') + 1);
    }
    return std::vector<int>{cores.begin(), cores.end()};
}

std::string format_core_list(std::span<const int> cores) {
    std::string text;
    for (std::size_t i = 0; i < cores.size();) {
        std::size_t end = i + 1;
        while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
        if (!text.empty()) text += ',';
        text += std::to_string(cores[i]);
        if (end > i + 1) text += fmt::format("-{}", cores[end - 1]);
        i = end;
    }
    return text;
}

Result<std::optional<double>> parse_cpu_max(std::string_view text) {
    const std::string_view line = trimmed(text);
    const std::size_t space = line.find(' ');
    const std::string_view quota = line.substr(0, space);
    if (quota == "max") return std::optional<double>{};
    const auto time = whole_number(quota);
    const auto period = space == std::string_view::npos ? std::optional<std::int64_t>{100'000}
                                                        : whole_number(trimmed(line.substr(space)));
    if (!time || !period || *time <= 0 || *period <= 0) {
        return Error{Errc::BadFile, "cpu.max says '" + std::string{line} + "'"};
    }
    return std::optional<double>{static_cast<double>(*time) / static_cast<double>(*period)};
}

int Machine::default_threads() const {
    int threads = std::max(1, physical_cores());
    // Rounded to the nearest: 1.9 cores keep two threads busy, 1.2 do not.
    if (quota) threads = std::min(threads, std::max(1, static_cast<int>(std::lround(*quota))));
    return threads;
}

std::vector<int> Machine::preferred_order() const {
    std::vector<int> order;
    for (std::size_t sibling = 0; order.size() < allowed.size(); ++sibling) {
        for (const std::vector<int>& core : smt) {
            if (sibling < core.size()) order.push_back(core[sibling]);
        }
    }
    return order;
}

Result<Machine> read_machine() {
    Result<std::vector<int>> allowed = affinity_cores();
    if (!allowed.ok()) return allowed.error();
    Machine machine;
    machine.allowed = std::move(allowed).value();
    machine.online = cores_online();
    machine.quota = cgroup_quota();
    std::set<int> seen;
    for (const int core : machine.allowed) {
        if (seen.contains(core)) continue;
        std::vector<int> group;
        for (const int sibling : siblings_of(core)) {
            const bool here =
                std::binary_search(machine.allowed.begin(), machine.allowed.end(), sibling);
            if (here && seen.insert(sibling).second) group.push_back(sibling);
        }
        machine.smt.push_back(std::move(group));
    }
    return machine;
}

Status check_cores(const Machine& machine, std::span<const int> cores, std::string_view what) {
    for (const int core : cores) {
        if (std::binary_search(machine.allowed.begin(), machine.allowed.end(), core)) continue;
        const std::string start = fmt::format("{}: core {}", what, core);
        if (core < 0 || core >= machine.online) {
            return Error{Errc::BadArgument,
                         fmt::format("{} does not exist (this machine has cores 0-{})", start,
                                     machine.online - 1)};
        }
        return Error{Errc::BadArgument, start + " is not allowed here (allowed: " +
                                            format_core_list(machine.allowed) + ")"};
    }
    return {};
}

Status pin_this_thread(std::span<const int> cores) {
    if (cores.empty() || *std::min_element(cores.begin(), cores.end()) < 0) {
        return Error{Errc::BadArgument, "cannot pin a thread to no core or to a negative one"};
    }
    const int highest = *std::max_element(cores.begin(), cores.end());
    const auto count = static_cast<std::size_t>(highest) + 1;
    cpu_set_t* set = CPU_ALLOC(count);
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, set);
    for (const int core : cores) CPU_SET_S(static_cast<std::size_t>(core), bytes, set);
    const int failed = ::sched_setaffinity(0, bytes, set);
    CPU_FREE(set);
    if (failed == 0) return {};
    return Error{Errc::BadArgument,
                 "cannot pin to cores " + format_core_list(cores) + ": " + std::strerror(errno)};
}

std::vector<bool> cores_shared(std::span<const std::vector<int>> cores) {
    const auto meet = [](const std::vector<int>& a, const std::vector<int>& b) {
        if (a.empty() || b.empty()) return true;
        return std::any_of(a.begin(), a.end(), [&](int core) {
            return std::find(b.begin(), b.end(), core) != b.end();
        });
    };
    std::vector<bool> shared(cores.size());
    for (std::size_t i = 0; i < cores.size(); ++i) {
        for (std::size_t j = 0; j < cores.size(); ++j)
            shared[i] = shared[i] || (i != j && meet(cores[i], cores[j]));
    }
    return shared;
}

std::uint32_t choose_spin(const Machine& machine, std::span<const std::vector<int>> cores) {
    // A spinner on a core that its producer needs costs twenty times what sleeping does.
    if (machine.quota && *machine.quota < static_cast<double>(cores.size())) return 0;
    const std::vector<bool> shared = cores_shared(cores);
    const auto spinners = std::count(shared.begin(), shared.end(), false);
    const auto there = static_cast<std::ptrdiff_t>(machine.allowed.size());
    return spinners > 0 && spinners <= there ? kSpinMicros : 0;
}

}  // namespace paceline
