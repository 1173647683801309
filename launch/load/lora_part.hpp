// Which file --lora means: a path, or the word early-exit for a part that is looked for.
//
// Reads cards only; what is found is merged, and checked, by merge_lora().
#pragma once

#include <string>

#include "ipc/base/result.hpp"
#include "launch/load/parts_search.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// The name of the part in a folder of trained parts.
inline constexpr const char* kEarlyExitFile = "early-exit.safetensors";

/// `option`: what --lora says, not empty. Errors: BadArgument if early-exit is looked for with
/// --parts none; BadFile if no folder of `search` has the part, naming the folders and the files
/// that were left out; for a folder named by --parts those of open_card() and check_target().
[[nodiscard]] Result<std::string> find_lora(const std::string& option,
                                            const PartsSearch& search,
                                            const ModelFile& target);

}  // namespace paceline
