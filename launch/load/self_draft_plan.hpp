// SelfDraftPlan: from [self_draft] to the options of the first segment's SelfDraft and the heads
// that its backend is given.
//
// Reads files of trained parts, and the state that the configuration names. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/self_draft/self_draft_options.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/self_draft_config.hpp"
#include "launch/load/used_parts.hpp"
#include "model/adapter_spec.hpp"
#include "model/backend.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct SelfDraftPlan {
    SelfDraftOptions options = {};
    bool final_head = false;                  // CpuOptions::final_head
    std::vector<HeadSpec> heads = {};         // CpuOptions::heads
    std::optional<AdapterSpec> adapter = {};  // CpuOptions::adapter
};

/// Errors: BadFile or BadArgument, naming key and value: a part or a state that cannot be read, a
/// state that cannot be written, an exit or a skip set with layers that the target has not, an exit
/// that has no adapter in the part, nothing left to skip.
[[nodiscard]] Result<SelfDraftPlan> plan_self_draft(const SelfDraftConfig& config,
                                                    const PartFiles& files,
                                                    const ModelFile& target);

/// Errors: BadArgument for an exit after the first segment, which has so many layers.
[[nodiscard]] Status check_first_segment(const SelfDraftOptions& options, int layers);

/// KV slots that the search of a skip set needs beside those of requests: whole pages.
[[nodiscard]] std::int32_t scratch_slots(const SelfDraftConfig& config, int layers);

}  // namespace paceline
