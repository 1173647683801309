// Pretrained: finds the trained parts of a target (docs/trained-parts.md) that a configuration asks
// for.
//
// Parts are files with fixed names in one folder. A folder counts for a target if the fingerprint
// in the files is the target's, so it need not be named. Searched, the first that has a part wins:
//
//     1. --parts DIR, alone; what is there must fit. --parts none: no search, stand-ins everywhere
//     2. $PACELINE_PRETRAINED
//     3. model/pretrained/* of the source tree that the program was built from
//     4. share/paceline/pretrained/* beside the folder that the program lies in
//
// A target with a LoRA merged has a fingerprint of its own: parts of the plain target are skipped.
// `part = "FILE"` in [draft] or [exit] comes before all of them, but for --parts none.
// Reads files. One thread.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/load/parts_search.hpp"
#include "launch/load/used_parts.hpp"
#include "launch/placement/placement.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Paths; empty: there is none.
struct FoundParts {
    std::string draft_small;           // draft-small.safetensors
    std::string draft_deep;            // draft-deep.safetensors
    std::string eagle;                 // eagle.safetensors
    std::string heads;                 // heads.safetensors
    std::string medusa;                // medusa.safetensors
    std::string adapter;               // adapter.safetensors
    std::string probe;                 // probe.safetensors
    std::vector<std::string> omitted;  // files that cannot be read, and why
};

/// Those that there are.
[[nodiscard]] std::vector<std::string> files_of(const FoundParts& found);

/// Errors, for a named folder only: BadFile if it holds no part or one that cannot be read,
/// BadArgument with both fingerprints if one is another target's.
[[nodiscard]] Result<FoundParts> find_parts(const PartsSearch& search, const ModelFile& target);

/// `config` for this target: where a trained part is asked for, its file is found, or the stand-in
/// takes its place; of a draft model that is named owner/name its folder is found. Errors: those of
/// find_parts() and find_model(), and of reading a part that is used or named.
[[nodiscard]] Result<ResolvedConfig> use_parts(PipelineConfig config,
                                               const PartsSearch& search,
                                               const ModelFile& target);

/// Which parts and stand-ins a configuration uses, a line for each; empty if nothing in it is or
/// could be trained.
[[nodiscard]] std::string parts_text(const ResolvedConfig& pipeline, const Placement& placement);

}  // namespace paceline
