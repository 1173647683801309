// Node shares: which stages run on which machine, where the configuration does not say.
//
// Segments stay in their order, in even shares of one machine after the other, the conductor's
// first; the draft and correct are beside the first segment. With one segment less than machines
// they have the last machine for themselves. Stages that share a process stay together. If any
// stage names its `node`, nothing is chosen: those that name none run on the conductor's machine.
//
// Pure functions of values.
#pragma once

#include <vector>

#include "ipc/base/result.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/placement/placement.hpp"

namespace paceline {

/// The configuration with the `node` of each stage. Errors: BadArgument for more machines than
/// stages can use.
[[nodiscard]] Result<PipelineConfig> share_nodes(PipelineConfig config,
                                                 const std::vector<OtherMachine>& others);

}  // namespace paceline
