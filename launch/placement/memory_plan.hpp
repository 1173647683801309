// MemoryPlan: the memory that the processes of a run will need, computed from the tensors' sizes
// before anything is loaded or started; and whether it is available.
//
// Weights and KV cache are exact (the backend reserves this plan); buffers, channels
// and the overhead of a process are an upper estimate. A KV cache fills up as the text grows,
// but counts in full, so that a run that starts does not run out of memory during an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/device.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/exit_heads.hpp"
#include "launch/load/self_draft_plan.hpp"
#include "launch/placement/available_memory.hpp"
#include "launch/placement/placement.hpp"
#include "model/cpu/cpu_options.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// What a GPU takes of its memory.
struct GpuShare {
    std::uint64_t weight_bytes = 0;
    std::uint64_t kv_bytes = 0;
    std::uint64_t workspace_bytes = 0;
    [[nodiscard]] std::uint64_t all() const { return weight_bytes + kv_bytes + workspace_bytes; }
};

struct MemoryNeed {
    std::string name;  // of the stage
    std::uint64_t weight_bytes = 0;
    std::uint64_t kv_bytes = 0;
    std::uint64_t other_bytes = 0;      // of the host, with what it retains there
    bool on_gpu = false;                // weights and KV cache are
    std::uint64_t workspace_bytes = 0;  // of the GPU, with what recordings of batches may take, and
                                        // what it retains and its roles keep there
    // Hidden states, where the stage computes; in other_bytes or in workspace_bytes:
    std::uint64_t retained_bytes = 0;
    std::uint64_t role_bytes = 0;     // of the batches that a segment's roles hold, at most
    std::uint64_t feature_bytes = 0;  // of an EAGLE draft's features, on the host; in other_bytes
    // Of the stage's several GPUs, in their order: what each has of the above; empty: one has all.
    std::vector<GpuShare> gpus{};

    /// Bytes of the host's memory.
    [[nodiscard]] std::uint64_t on_host() const {
        return other_bytes + (on_gpu ? 0 : weight_bytes + kv_bytes);
    }
    /// Of each GPU of the stage; empty if it is on none.
    [[nodiscard]] std::vector<GpuShare> on_gpus() const;
};

/// What each GPU of a stage on `device` takes; nothing on the host.
[[nodiscard]] std::vector<std::pair<int, GpuShare>> shares_by_gpu(const Device& device,
                                                                  const MemoryNeed& need);

/// Slots of the KV caches whose hidden states the stage keeps (retained_states.hpp): whole pages.
[[nodiscard]] std::int32_t retained_slots(const PlacedStage& stage, int dim, std::int32_t kv_slots);
/// Batches of hidden states that the roles of a segment hold beside its backend's own: a scratch
/// batch of its layers, the last segment's, and what an exit or a target that drafts for itself
/// evaluates, with what the adapter of either reads and gives. Memory for them is allocated by the
/// first jobs (Backend::make_rows()). An upper estimate: a GPU's workspace has room for some of
/// them, which smaller batches before them may have taken.
[[nodiscard]] std::uint64_t role_batches(bool last, bool exit, bool self_draft, bool adapter);
/// Of a backend with `options`; `name` is for messages.
[[nodiscard]] MemoryNeed plan_backend(const ModelFile& file,
                                      const CpuOptions& options,
                                      const std::string& name,
                                      const Device& device = {});
/// In the order of the stages; `options` but for layers and heads, and `gpu_kv` for the KV type of
/// stages on GPUs. `parts`: those of `exit`; `draft`: the model of draft and correct,
/// which each loads; `self`: the plan of the first segment that drafts for itself; nothing: none.
[[nodiscard]] std::vector<MemoryNeed> plan_stages(const ModelFile& file,
                                                  const CpuOptions& options,
                                                  const Placement& placement,
                                                  const std::optional<ExitConfig>& exit,
                                                  const ExitParts& parts,
                                                  const std::optional<DraftBackend>& draft,
                                                  KvType gpu_kv = KvType::BF16,
                                                  const std::optional<SelfDraftPlan>& self = {});

/// Errors: OutOfMemory with the need of each process, the memory available, and options that need
/// less. If the available memory is unknown everything fits. Only the host's memory counts: a GPU's
/// is known to the process that uses it, and make_cuda_backend() refuses there.
[[nodiscard]] Status check_memory(const std::vector<MemoryNeed>& needs,
                                  const std::optional<AvailableMemory>& room);

}  // namespace paceline
