// MemoryPlan: what the processes of a run will need, computed from the tensors' sizes before
// anything is loaded or started; and whether that is there.
//
// Weights and KV cache are exact (the backend reserves what is planned here); buffers, channels
// and what any process costs are an estimate from above. A KV cache fills up as the text grows,
// but counts whole: a run that starts must not die in the middle of its answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/draft_backend.hpp"
#include "launch/exit_heads.hpp"
#include "launch/memory_room.hpp"
#include "launch/placement.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct MemoryNeed {
    std::string name;  // of the stage
    std::uint64_t weight_bytes = 0;
    std::uint64_t kv_bytes = 0;
    std::uint64_t other_bytes = 0;

    [[nodiscard]] std::uint64_t total() const { return weight_bytes + kv_bytes + other_bytes; }
};

/// Of a backend with `options`; `name` is for messages.
[[nodiscard]] MemoryNeed plan_backend(const ModelFile& file,
                                      const CpuOptions& options,
                                      const std::string& name);
/// In the order of the stages; `options` but for layers and heads. `parts`: those of `exit`;
/// `draft`: the model that draft and correct think with, each on its own; nothing: none.
[[nodiscard]] std::vector<MemoryNeed> plan_stages(const ModelFile& file,
                                                  const CpuOptions& options,
                                                  const Placement& placement,
                                                  const std::optional<ExitConfig>& exit,
                                                  const ExitParts& parts,
                                                  const std::optional<DraftBackend>& draft);

/// Errors: OutOfMemory with what is needed by whom, what there is, and which options need less.
/// Without a known room everything fits.
[[nodiscard]] Status check_memory(const std::vector<MemoryNeed>& needs,
                                  const std::optional<MemoryRoom>& room);

}  // namespace paceline
