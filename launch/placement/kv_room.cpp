#include "launch/placement/kv_room.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <map>

#include "launch/placement/gpu_plan.hpp"

namespace paceline {

std::vector<SharedMemory> memories_of(const Placement& placement,
                                      const std::vector<MemoryNeed>& needs,
                                      const std::optional<AvailableMemory>& host,
                                      const GpuMachine& gpus) {
    SharedMemory of_host{.bytes = host ? host->bytes : 0};
    std::map<int, SharedMemory> of_gpus;
    for (std::size_t i = 0; i < needs.size(); ++i) {
        const MemoryNeed& need = needs[i];
        of_host.needed += need.on_host();
        if (!need.on_gpu) of_host.kv += need.kv_bytes;
        for (const auto& [gpu, share] : shares_by_gpu(placement.stages[i].device, need)) {
            if (gpu >= static_cast<int>(gpus.gpus.size())) continue;
            SharedMemory& memory = of_gpus[gpu];
            memory.bytes = room_of(gpus.gpus[static_cast<std::size_t>(gpu)]);
            memory.needed += share.all();
            memory.kv += share.kv_bytes;
        }
    }
    std::vector<SharedMemory> memories;
    if (host) memories.push_back(of_host);
    for (const auto& [gpu, memory] : of_gpus) memories.push_back(memory);
    return memories;
}

std::int32_t pages_that_fit(std::int32_t pages, const std::vector<SharedMemory>& memories) {
    double share = 1.0;
    for (const SharedMemory& memory : memories) {
        if (memory.needed <= memory.bytes || memory.kv == 0) continue;
        const double usable = 0.95 * static_cast<double>(memory.bytes);
        const double left = usable - static_cast<double>(memory.needed - memory.kv);
        share = std::clamp(left / static_cast<double>(memory.kv), 0.0, share);
    }
    return static_cast<std::int32_t>(share * pages);
}

std::string kv_room_text(std::int32_t text_slots,
                         Position context,
                         const std::vector<MemoryNeed>& needs) {
    const double contexts = context > 0 ? static_cast<double>(text_slots) / context : 0.0;
    std::string text =
        fmt::format("KV cache: {} tokens, {:.1f} contexts of {}\n", text_slots, contexts, context);
    for (const MemoryNeed& need : needs) {
        if (need.retained_bytes == 0) continue;
        text += fmt::format("{} retains {:.1f} MB of hidden states\n", need.name,
                            static_cast<double>(need.retained_bytes) / 1e6);
    }
    return text;
}

}  // namespace paceline
