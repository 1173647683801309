// How large the KV caches are where no size was asked for: a whole context for each request, or
// what weights and buffers leave of the memory if that is less.
//
// Pure functions of values. Host and GPUs are looked at alike: every KV cache has as many slots, so
// the fullest memory decides for all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "launch/config/machine_file.hpp"
#include "launch/placement/available_memory.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/placement/placement.hpp"

namespace paceline {

/// A memory that stages share: the host's, or a GPU's.
struct SharedMemory {
    std::uint64_t bytes = 0;   // that stages may have
    std::uint64_t needed = 0;  // of them, KV caches included
    std::uint64_t kv = 0;      // the KV caches alone
};

/// Those of `placement` whose size is known. `needs`: in the order of its stages.
[[nodiscard]] std::vector<SharedMemory> memories_of(const Placement& placement,
                                                    const std::vector<MemoryNeed>& needs,
                                                    const std::optional<AvailableMemory>& host,
                                                    const GpuMachine& gpus);

/// So many of `pages` pages fit each of `memories`; all of them if they do as they are. Where they
/// do not, a twentieth of the memory stays free for what a plan cannot know.
[[nodiscard]] std::int32_t pages_that_fit(std::int32_t pages,
                                          const std::vector<SharedMemory>& memories);

/// A line for the placement table: "KV cache: 20480 tokens, 2.5 contexts of 8192", and one for each
/// stage that retains hidden states.
[[nodiscard]] std::string kv_room_text(std::int32_t text_slots,
                                       Position context,
                                       const std::vector<MemoryNeed>& needs = {});

}  // namespace paceline
