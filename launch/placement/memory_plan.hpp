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
#include "launch/backend/draft_backend.hpp"
#include "launch/backend/exit_heads.hpp"
#include "launch/backend/self_draft_plan.hpp"
#include "launch/base/device.hpp"
#include "launch/placement/memory_room.hpp"
#include "launch/placement/placement.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct MemoryNeed {
    std::string name;  // of the stage
    std::uint64_t weight_bytes = 0;
    std::uint64_t kv_bytes = 0;
    std::uint64_t other_bytes = 0;      // of the host
    bool on_gpu = false;                // weights and KV cache are
    std::uint64_t workspace_bytes = 0;  // of the GPU, with what recordings of waves may take

    /// Bytes of the host's memory.
    [[nodiscard]] std::uint64_t on_host() const {
        return other_bytes + (on_gpu ? 0 : weight_bytes + kv_bytes);
    }
};

/// Of a backend with `options`; `name` is for messages.
[[nodiscard]] MemoryNeed plan_backend(const ModelFile& file,
                                      const CpuOptions& options,
                                      const std::string& name,
                                      const Device& device = {});
/// In the order of the stages; `options` but for layers and heads, and `gpu_kv` for the KV type of
/// stages on GPUs. `parts`: those of `exit`; `draft`: the model that draft and correct think with,
/// each on its own; `self`: what the first segment drafts for itself with; nothing: none.
[[nodiscard]] std::vector<MemoryNeed> plan_stages(const ModelFile& file,
                                                  const CpuOptions& options,
                                                  const Placement& placement,
                                                  const std::optional<ExitConfig>& exit,
                                                  const ExitParts& parts,
                                                  const std::optional<DraftBackend>& draft,
                                                  KvType gpu_kv = KvType::BF16,
                                                  const std::optional<SelfDraftPlan>& self = {});

/// Errors: OutOfMemory with what is needed by whom, what there is, and which options need less.
/// Without a known room everything fits. Only the host's memory counts: a GPU's is known to the
/// process that uses it, and make_cuda_backend() refuses there.
[[nodiscard]] Status check_memory(const std::vector<MemoryNeed>& needs,
                                  const std::optional<MemoryRoom>& room);

}  // namespace paceline
