// UsedParts: the trained parts and model files that a configuration uses for one target: what
// use_parts() (launch/placement/pretrained.hpp) finds. Plain values; any thread.
#pragma once

#include <string>
#include <vector>

#include "launch/config/exit_config.hpp"
#include "launch/config/pipeline_config.hpp"

namespace paceline {

/// Paths: what a stage opens. Empty: there is none.
struct PartFiles {
    std::string draft = {};  // the draft's model, or the trained draft
    std::string draft_copy =
        {};  // of a draft's model that is a folder: its packed copy, set by keep_draft_copy()
    std::string heads =
        {};  // of the exits, of the last segment and of a target that drafts for itself
    std::string ahead = {};    // of the last segment: look-ahead heads with a residual block
    std::string adapter = {};  // of the exits, or of a target that drafts for itself
    std::string probe = {};    // of a target that drafts for itself
};

struct UsedParts {
    PartFiles files = {};
    bool draft_missing = false;  // the stand-in drafts: there is no trained draft for the target
    bool store_missing = false;  // [draft] names no datastore: what is beside it drafts
    int draft_layers = 0;        // of the trained draft
    int draft_tokens = 0;        // of its short list
    std::vector<int> head_layers = {};      // layers that have a trained exit head
    std::vector<int> adapter_layers = {};   // layers that have an adapter
    int ahead_heads = 0;                    // trained heads that look ahead
    int ahead_nodes = 0;                    // of their fixed tree
    bool ahead_missing = false;             // the stand-in of residual heads looks ahead
    int exit_tokens = 0;                    // of the short list of heads or adapter
    std::vector<std::string> omitted = {};  // files that were not used, and why

    /// What is after layer `layer` where [exit] asks for `wanted`.
    [[nodiscard]] ExitHead head_behind(int layer, ExitHead wanted) const;
};

/// What takes the place of `wanted` after a layer that has these parts.
[[nodiscard]] ExitHead resolved_head(ExitHead wanted, bool has_adapter, bool has_head);

/// A configuration for one target. Where a trained draft is missing, [draft] is its stand-in.
struct ResolvedConfig {
    PipelineConfig config = {};
    UsedParts parts = {};
};

}  // namespace paceline
