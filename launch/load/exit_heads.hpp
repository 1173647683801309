// Exit heads: from [exit] to the heads that a segment's backend is given, and to the ExitOptions of
// its actor. Trained ones come from their files; what stands in for them is made here: the target's
// own head, or noise.
//
// exit_heads() is pure: the same settings and parts give the same heads, in every process and after
// every restart.
#pragma once

#include <optional>
#include <vector>

#include "actors/segment/exit_options.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/exit_config.hpp"
#include "launch/load/used_parts.hpp"
#include "model/adapter_spec.hpp"
#include "model/backend.hpp"
#include "model/config.hpp"
#include "model/weights/trained_parts.hpp"

namespace paceline {

/// The trained parts that [exit] uses; nothing: there is none.
struct ExitParts {
    std::optional<HeadsPart> heads = {};
    std::optional<HeadsPart> residual = {};  // heads that look ahead, with a residual block
    std::optional<AdapterPart> adapter = {};

    /// Whose heads look ahead as `exit` asks; nullptr: they are random.
    [[nodiscard]] const HeadsPart* looking_ahead(const ExitConfig& exit) const;
};

/// The file of the trained heads that look ahead; empty: there is none.
[[nodiscard]] const std::string& look_ahead_file(const ExitConfig& exit, const PartFiles& files);

/// The part's fixed tree, as deep as `exit` has heads.
[[nodiscard]] std::vector<AheadNode> ahead_tree_of(const ExitConfig& exit, const HeadsPart& part);

/// Reads those of `files` that `exit` needs. Errors: those of open_heads_part() and
/// open_adapter_part(); BadArgument naming file, key and value if the heads that look ahead have
/// another block than `exit` asks for, or no fixed tree.
[[nodiscard]] Result<ExitParts> open_exit_parts(const ExitConfig& exit,
                                                const PartFiles& files,
                                                const ModelFile& target);

/// The head after layer `layer`: the one that `exit` asks for if the parts have it for that layer.
[[nodiscard]] ExitHead head_behind(int layer, const ExitConfig& exit, const ExitParts& parts);

struct ExitHeads {
    bool final_head = false;                  // CpuOptions::final_head
    std::vector<HeadSpec> heads = {};         // CpuOptions::heads: HeadId 1, 2, ...
    std::optional<AdapterSpec> adapter = {};  // CpuOptions::adapter: HeadId::Adapter
    std::optional<ExitOptions> options = {};
};

/// The part of a segment in [exit].
struct ExitPlace {
    int last_layer = 0;    // the segment's: layers that have run when the exit looks
    bool at_exit = false;  // the segment has one
    bool last = false;     // it is the last one, where the heads that look ahead are
};

/// Nothing is set where [exit] has nothing for the segment.
[[nodiscard]] ExitHeads exit_heads(const ExitConfig& exit,
                                   const ModelConfig& model,
                                   const ExitParts& parts,
                                   const ExitPlace& place,
                                   const std::vector<StageId>& candidates_to);

}  // namespace paceline
