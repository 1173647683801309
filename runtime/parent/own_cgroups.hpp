// The control groups of this process as the kernel tells them. Plain values; what cannot be read is
// absent. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline {

/// A line of /proc/self/cgroup, one per hierarchy.
struct OwnCgroup {
    std::string controllers;  // of version 1, "cpu,cpuacct"; empty: version 2
    std::string path;         // below the place where the hierarchy is mounted

    [[nodiscard]] bool is_version_2() const { return controllers.empty(); }
    [[nodiscard]] bool has(std::string_view controller) const;
};

/// Empty if they cannot be read.
[[nodiscard]] std::vector<OwnCgroup> own_cgroups();

/// `path` and the path of every group above it; the root comes last.
[[nodiscard]] std::vector<std::string> with_groups_above(std::string path);

/// All of a small file, such as those of /proc and /sys.
[[nodiscard]] std::optional<std::string> read_kernel_file(const std::string& path);

}  // namespace paceline
