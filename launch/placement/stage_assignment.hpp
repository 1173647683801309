// StageAssignment: the payload of Assign: the actors of a stage process, their layers, models and
// settings.
//
// A plain value with a bounded encoding, made by pipeline_layout.cpp and read by stage_actors.cpp.
// Settings travel as the fields of their structs (launch/config/field.hpp), whose ranges hold here
// too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/retained_states.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "launch/load/used_parts.hpp"

namespace paceline {

/// One of the actors that a process hosts.
struct StageSpec {
    StageId id;  // a segment's is also its place in the chain, counted from 1
    StageRole role = StageRole::Segment;
    LayerRange layers;  // of a segment
    bool exit = false;  // of a segment
    Device device = {};
    std::uint32_t rows_max = kVerifyRowsMax;  // of one batch or pass
};

struct StageAssignment {
    ModelOptions model;  // paths of model and LoRA, dtypes, instruction set, context
    PartFiles parts;
    std::vector<StageSpec> stages;
    std::vector<int> cores;
    std::int32_t threads = 1;
    std::int32_t usable_cores = 1;
    bool shares_cores = false;  // another process may compute on any of them
    std::int32_t kv_slots = 0;
    std::int32_t segments = 1;
    std::int32_t draft_stage = 0;           // its stage id; 0: no draft
    std::int32_t correct_stage = 0;         // likewise
    std::int32_t candidate_stage = 0;       // of the segment whose exit sends candidates; 0: none
    std::vector<StageId> exit_stages = {};  // segments with an exit, and one with heads ahead
    std::vector<RetainedBy> retained = {};  // the segments that keep what they pass on
    DispatchOptions dispatch;
    DraftConfig draft;
    std::optional<ExitConfig> exit;
    std::optional<SelfDraftConfig> self_draft;
    bool verbose = false;  // log normal events too
    /// Tensors of its edges lie on its GPU, those between two of its own stages there included.
    bool tensors_on_device = false;
};

[[nodiscard]] std::vector<std::byte> encode(StageAssignment assignment);
/// Errors: Protocol, for bytes that are too few or too many and values out of range.
[[nodiscard]] Result<StageAssignment> decode_assignment(std::span<const std::byte> bytes);

}  // namespace paceline
