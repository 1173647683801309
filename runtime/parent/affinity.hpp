// Affinity: which cores this process may use, and how to stay on some of them.
//
// Aware of sched_getaffinity(2), of the CPU quota of the process's cgroup (v2 cpu.max, v1
// cpu.cfs_quota_us, on every level up to the root) and of SMT siblings (/sys). Pure parsing is
// separate from reading, so that it is tested with synthetic files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline {

struct Machine {
    std::vector<int> allowed;           // cores this process may run on, ascending
    std::vector<std::vector<int>> smt;  // the allowed cores, grouped by physical core
    std::optional<double> quota;        // CPU time per wall time that the cgroup grants
    int online = 0;                     // cores of the whole machine

    [[nodiscard]] int physical_cores() const { return static_cast<int>(smt.size()); }
    /// Threads that make sense by default: one per allowed physical core, not over the quota.
    [[nodiscard]] int default_threads() const;
    /// One logical core of each physical core first, then the siblings: the order in which
    /// pinned threads take cores.
    [[nodiscard]] std::vector<int> preferred_order() const;
};

[[nodiscard]] Result<Machine> read_machine();

/// Errc::BadArgument: "core 7 does not exist (this machine has cores 0-1)", or "core 1 is not
/// allowed here (allowed: 0)". `what` names who asked, e.g. "stage segment-1".
[[nodiscard]] Status check_cores(const Machine& machine,
                                 std::span<const int> cores,
                                 std::string_view what);

/// Pins the calling thread.
[[nodiscard]] Status pin_this_thread(std::span<const int> cores);

/// For each process of a pipeline whether another one may run on any of its cores. `cores[i]` are
/// those of process i, empty for one that is not pinned: the scheduler may put it anywhere.
[[nodiscard]] std::vector<bool> cores_shared(std::span<const std::vector<int>> cores);

/// How long those of them that share no core may spin before they sleep; who shares one never
/// spins. 0: no process does, for there are fewer cores than that, or their quota is less.
[[nodiscard]] std::uint32_t choose_spin(const Machine& machine,
                                        std::span<const std::vector<int>> cores);

/// "0-3,8" as the kernel writes core lists; an error names the text.
[[nodiscard]] Result<std::vector<int>> parse_core_list(std::string_view text);
/// {0,1,2,5} -> "0-2,5".
[[nodiscard]] std::string format_core_list(std::span<const int> cores);
/// "max 100000" -> nothing, "150000 100000" -> 1.5 (cgroup v2 cpu.max).
[[nodiscard]] Result<std::optional<double>> parse_cpu_max(std::string_view text);

}  // namespace paceline
