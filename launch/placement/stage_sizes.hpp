// StageSizes: the memory that the stages of any placement of one pipeline need. Models and parts
// are opened once, so that a planner can try many placements.
//
// Refers to the target's file and to the configuration's [exit], which must outlive it. One thread;
// opening reads files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "launch/load/self_draft_plan.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/placement/pipeline_layout.hpp"

namespace paceline {

/// Whether the draft's keys and values can be sent to correct: they are sent as bytes, which is
/// possible only if both store them as the same type. With one on a GPU and one on a CPU that
/// requires --kv-dtype.
[[nodiscard]] bool drafts_share_kv(const Placement& placement, const ModelOptions& options);

/// Room in the KV caches for the texts of requests, which take pages as they grow.
struct KvSize {
    int contexts = 1;  // so many whole ones
    std::uint64_t bytes =
        0;  // instead: of the target's keys and values, in all its segments; 0: no
};

class StageSizes {
public:
    /// Errors: those of plan_draft_backend(), open_exit_parts() and plan_self_draft(); BadArgument
    /// with both numbers if the context that was asked for does not fit `kv.bytes`. A context that
    /// was not asked for is cut to what fits.
    static Result<StageSizes> open(const ModelFile& file,
                                   const ModelOptions& options,
                                   const ResolvedConfig& pipeline,
                                   const KvSize& kv);

    /// In the order of the stages.
    [[nodiscard]] std::vector<MemoryNeed> needs(const Placement& placement) const;
    /// Of what travels beside the messages.
    [[nodiscard]] EdgeSizes edges(const Placement& placement) const;
    /// Whether each model has as many KV heads as GPUs share a stage of it. Errors: BadArgument
    /// with stage, key, value, and how many may.
    [[nodiscard]] Status check_groups(const PipelineConfig& config) const;
    /// A message for each model whose block types are rounded (stored_types.hpp).
    [[nodiscard]] std::string rounded(const Placement& placement) const;
    [[nodiscard]] Position context() const { return context_; }  // of one request
    /// Of the caches: those for texts, and scratch slots.
    [[nodiscard]] std::int32_t kv_slots() const { return text_slots_ + scratch_slots_; }
    [[nodiscard]] std::int32_t text_slots() const { return text_slots_; }
    /// Of a page of the target's keys and values, in all its segments.
    [[nodiscard]] std::uint64_t page_bytes() const;

private:
    [[nodiscard]] Status size_caches(const KvSize& kv);
    StageSizes(const ModelFile& file, const ModelOptions& options, const PipelineConfig& config);

    const ModelFile* file_;
    ModelOptions options_;
    const PipelineConfig* config_;
    CpuOptions backend_ = {};
    std::optional<DraftBackend> draft_ = {};
    ExitParts parts_ = {};
    std::optional<SelfDraftPlan> self_ = {};
    Position context_ = 0;
    std::int32_t text_slots_ = 0;
    std::int32_t scratch_slots_ = 0;
};

}  // namespace paceline
