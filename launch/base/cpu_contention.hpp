// CpuContention: how many of the cores that this process may use were kept busy by other processes
// since the object was made.
//
// Computed as the busy time that the kernel counts for these cores in /proc/stat, less the
// processor time of this process and its children, over the elapsed time. No result where /proc
// lacks the data (another kernel, or a container that hides it). One thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline {

/// Seconds in which these cores were not idle, from the text of /proc/stat; no result if a core is
/// missing in it.
[[nodiscard]] std::optional<double> busy_seconds(std::string_view stat,
                                                 const std::vector<int>& cores,
                                                 double ticks_per_second);
/// Processor seconds of a process, from the text of its /proc/PID/stat.
[[nodiscard]] std::optional<double> process_seconds(std::string_view stat, double ticks_per_second);

class CpuContention {
public:
    /// The measurement begins.
    CpuContention();

    /// Cores that other processes kept busy since then, on average; no result in the first second.
    [[nodiscard]] std::optional<double> cores() const;
    /// Cores that this process may use.
    [[nodiscard]] int usable() const { return static_cast<int>(cores_.size()); }

private:
    struct Sample {
        std::chrono::steady_clock::time_point at{};
        std::optional<double> busy = {};  // seconds of all cores
        double own = 0.0;
    };
    [[nodiscard]] Sample sample() const;

    std::vector<int> cores_;
    Sample begin_;
};

/// A sentence about `cores` of `usable` cores that others took, and what helps; empty: it is no
/// matter.
[[nodiscard]] std::string contention_note(double cores, int usable, bool stages);

}  // namespace paceline
