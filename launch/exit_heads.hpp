// Exit heads: from [exit] to the heads that a segment's backend is given, and to the ExitOptions of
// its actor. What stands in for trained parts is made here: the target's own head, or noise.
//
// Pure: the same settings give the same heads, in every process and after every restart.
#pragma once

#include <optional>
#include <vector>

#include "actors/exit_options.hpp"
#include "launch/exit_config.hpp"
#include "model/backend.hpp"
#include "model/config.hpp"

namespace paceline {

struct ExitHeads {
    bool final_head = false;           // CpuOptions::final_head
    std::vector<HeadSpec> heads = {};  // CpuOptions::heads: HeadId 1, 2, ...
    std::optional<ExitOptions> options = {};
};

/// Of a segment: `at_exit` says that it has an exit, `last` that it is the last one, where the
/// heads that look ahead are. Nothing is set where [exit] has nothing for it.
[[nodiscard]] ExitHeads exit_heads(const ExitConfig& exit,
                                   const ModelConfig& model,
                                   bool at_exit,
                                   bool last,
                                   const std::vector<StageId>& names_to);

}  // namespace paceline
