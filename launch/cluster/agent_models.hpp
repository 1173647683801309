// What an agent changes in the assignment of a stage before the stage reads it: the paths of models
// and parts, which must lie below its --models folder, and the cores, which are those of its
// machine.
//
// A path of the conductor that lies below the folder here too is used as it is (a shared file
// system); of another one the last name is looked for in the folder. No link leads out of it, nor
// does one in a model's folder or among the shards of a split model. Whether the file has the same
// content is compared by the conductor: fingerprint and vocabulary in the stage's Hello. Reads the
// file system; any thread.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "runtime/cluster/agent_stages.hpp"

namespace paceline {

/// The file or folder that `path` means here. Errors: BadFile with the path and the folder.
[[nodiscard]] Result<std::string> path_below(const std::string& folder, const std::string& path);

/// `cores`: those that stages may use here, in the order in which they take them.
[[nodiscard]] CheckAssignment assignment_check(std::string folder, std::vector<int> cores);

}  // namespace paceline
