#include "launch/placement/available_memory.hpp"

#include <charconv>
#include <fstream>
#include <sstream>

namespace paceline {
namespace {

std::optional<std::string> read_text(const std::string& path) {
    std::ifstream file{path};
    if (!file) return std::nullopt;
    return std::string{std::istreambuf_iterator<char>{file}, {}};
}

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
                       std::string group,
                       const GroupFiles& files) {
    for (;;) {
        const std::string folder = root + group;
        const auto limit = read_text(folder + files.limit);
        const auto current = read_text(folder + files.current);
        const auto stat = read_text(folder + "/memory.stat");
        if (limit && current) {
            const auto left = parse_group_room(*limit, *current, stat.value_or(""), files.inactive);
            if (left) tighten(room, *left, "the limit of cgroup " + (group.empty() ? "/" : group));
        }
        if (group.empty() || group == "/") return;
        group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
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
    if (const auto meminfo = read_text("/proc/meminfo")) {
        if (const auto bytes = parse_mem_available(*meminfo)) tighten(room, *bytes, "MemAvailable");
    }
    std::istringstream groups{read_text("/proc/self/cgroup").value_or("")};
    // One line per hierarchy: "id:controllers:path".
    for (std::string line; std::getline(groups, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const std::string group = line.substr(second + 1);
        if (controllers == ",,") {
            tighten_by_groups(room, "/sys/fs/cgroup", group, kV2);
            tighten_by_groups(room, "/sys/fs/cgroup/unified", group, kV2);
        } else if (controllers.find(",memory,") != std::string::npos) {
            tighten_by_groups(room, "/sys/fs/cgroup/memory", group, kV1);
        }
    }
    return room;
}

}  // namespace paceline
