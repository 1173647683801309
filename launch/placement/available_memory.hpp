// AvailableMemory: how much memory this process and its children can still get without the kernel
// taking it back by force.
//
// The least of /proc/meminfo's MemAvailable and what each memory cgroup above this process (v2
// and v1) leaves: its limit less its use, where file pages that can be dropped do not count as
// used. Parsing is separate from reading, so that it is tested with synthetic files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline {

struct AvailableMemory {
    std::uint64_t bytes = 0;
    std::string whence;  // "MemAvailable", "the limit of cgroup /user.slice"
};

/// Nothing where the kernel does not say.
[[nodiscard]] std::optional<AvailableMemory> read_available_memory();

/// The value of "MemAvailable:   123 kB" in bytes.
[[nodiscard]] std::optional<std::uint64_t> parse_mem_available(std::string_view meminfo);
/// What a group leaves: `limit` ("max", "123456") less `current`, plus the key `inactive` of its
/// memory.stat. Nothing if it has no limit.
[[nodiscard]] std::optional<std::uint64_t> parse_group_room(std::string_view limit,
                                                            std::string_view current,
                                                            std::string_view stat,
                                                            std::string_view inactive);

}  // namespace paceline
