// OtherLoad: how much of this process's cores other processes used while it ran: the busy time that the kernel
// counted on the cores that this process may use, less the time of this process and its children.
//
// Reads /proc. Returns nothing where /proc lacks the data (another kernel, a container that hides it). One
// thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline {

/// Seconds that these cores were not idle, by the text of /proc/stat; nothing if a core is not in it.
[[nodiscard]] std::optional<double> busy_seconds(std::string_view stat,
                                                 const std::vector<int>& cores,
                                                 double ticks_per_second);
/// Seconds that a process has computed, by the text of its /proc/PID/stat.
[[nodiscard]] std::optional<double> process_seconds(std::string_view stat, double ticks_per_second);

class OtherLoad {
public:
    /// The time begins.
    OtherLoad();

    /// Cores that others kept busy since then, on average; nothing if less than a second has passed.
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

/// A sentence about `cores` of `usable` cores that others took, and what helps; empty: it is no matter.
[[nodiscard]] std::string other_load_note(double cores, int usable, bool stages);

}  // namespace paceline
