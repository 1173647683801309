#include "launch/placement/available_memory.hpp"

#include <charconv>

#include "runtime/parent/own_cgroups.hpp"

namespace paceline {
namespace {

/// The number that `text` begins with, after blanks.
std::optional<std::uint64_t> leading_number(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    std::uint64_t value = 0;
    const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (wrong != std::errc{} || end == text.data()) return std::nullopt;
    return value;
}

/// The number after `key` at the beginning of a line.
std::optional<std::uint64_t> value_of(std::string_view text, std::string_view key) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (line.substr(0, key.size()) == key) return leading_number(line.substr(key.size()));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
    }
    return std::nullopt;
}

/// The names of the files in which one kind of cgroup says it.
struct GroupFiles {
    const char* limit;
    const char* current;
    const char* inactive;
};
constexpr GroupFiles kV2{"/memory.max", "/memory.current", "inactive_file "};
constexpr GroupFiles kV1{"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                         "total_inactive_file "};

void tighten(std::optional<AvailableMemory>& room, std::uint64_t bytes, const std::string& whence) {
    if (!room || bytes < room->bytes) room = AvailableMemory{bytes, whence};
}

/// `group` and every group above it, below `root`.
void tighten_by_groups(std::optional<AvailableMemory>& room,
                       const std::string& root,
                       const std::string& group,
                       const GroupFiles& files) {
    for (const std::string& path : with_groups_above(group)) {
        const std::string folder = root + path;
        const auto limit = read_kernel_file(folder + files.limit);
        const auto current = read_kernel_file(folder + files.current);
        const auto stat = read_kernel_file(folder + "/memory.stat");
        if (!limit || !current) continue;
        const auto left = parse_group_room(*limit, *current, stat.value_or(""), files.inactive);
        if (left) tighten(room, *left, "the limit of cgroup " + (path.empty() ? "/" : path));
    }
}

}  // namespace

std::optional<std::uint64_t> parse_mem_available(std::string_view meminfo) {
    const std::optional<std::uint64_t> kilobytes = value_of(meminfo, "MemAvailable:");
    if (!kilobytes) return std::nullopt;
    return *kilobytes * 1024;
}

std::optional<std::uint64_t> parse_group_room(std::string_view limit,
                                              std::string_view current,
                                              std::string_view stat,
                                              std::string_view inactive) {
    const std::optional<std::uint64_t> most = leading_number(limit);
    const std::optional<std::uint64_t> used = leading_number(current);
    // v1 says "no limit" as a number near 2^63.
    if (!most || !used || *most >= (std::uint64_t{1} << 60)) return std::nullopt;
    const std::uint64_t left = *used < *most ? *most - *used : 0;
    return std::min(*most, left + value_of(stat, inactive).value_or(0));
}

std::optional<AvailableMemory> read_available_memory() {
    std::optional<AvailableMemory> room;
    if (const auto meminfo = read_kernel_file("/proc/meminfo")) {
        if (const auto bytes = parse_mem_available(*meminfo)) tighten(room, *bytes, "MemAvailable");
    }
    for (const OwnCgroup& group : own_cgroups()) {
        if (group.is_version_2()) {
            tighten_by_groups(room, "/sys/fs/cgroup", group.path, kV2);
            tighten_by_groups(room, "/sys/fs/cgroup/unified", group.path, kV2);
        } else if (group.has("memory")) {
            tighten_by_groups(room, "/sys/fs/cgroup/memory", group.path, kV1);
        }
    }
    return room;
}

}  // namespace paceline
