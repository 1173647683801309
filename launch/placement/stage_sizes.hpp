// StageSizes: what the stages of any placement of one pipeline need. What they think with is opened
// once, so that a planner may ask for many placements.
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
#include "launch/backend/self_draft_plan.hpp"
#include "launch/base/model_options.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/placement/pipeline_layout.hpp"

namespace paceline {

/// Whether keys and values can go from the draft to correct: they are bytes, and mean the same only
/// where both store them as one type. On a GPU and on a CPU that takes --kv-dtype.
[[nodiscard]] bool drafts_share_kv(const Placement& placement, const ModelOptions& options);

class StageSizes {
public:
    /// `requests`: how many contexts the KV caches have room for. `config` is settled by use_parts().
    /// Errors: those of plan_draft_backend(), open_exit_parts() and plan_self_draft().
    static Result<StageSizes> open(const ModelFile& file,
                                   const ModelOptions& options,
                                   const PipelineConfig& config,
                                   int requests);

    /// In the order of the stages.
    [[nodiscard]] std::vector<MemoryNeed> needs(const Placement& placement) const;
    /// Of what travels beside the messages.
    [[nodiscard]] EdgeSizes edges(const Placement& placement) const;
    /// A line for people for each model of which block types are rounded (stored_types.hpp).
    [[nodiscard]] std::string rounded(const Placement& placement) const;
    [[nodiscard]] Position context() const { return context_; }        // of one request
    [[nodiscard]] std::int32_t kv_slots() const { return kv_slots_; }  // for all of them

private:
    StageSizes(const ModelFile& file, const ModelOptions& options, const PipelineConfig& config);

    const ModelFile* file_;
    ModelOptions options_;
    const PipelineConfig* config_;
    CpuOptions backend_ = {};
    std::optional<DraftBackend> draft_ = {};
    ExitParts parts_ = {};
    std::optional<SelfDraftPlan> self_ = {};
    Position context_ = 0;
    std::int32_t kv_slots_ = 0;
};

}  // namespace paceline
