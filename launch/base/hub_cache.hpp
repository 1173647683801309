// Models of the Hugging Face cache of this machine, by the name that they have on the hub.
//
//     HUB/models--owner--name/refs/main            the commit
//     HUB/models--owner--name/snapshots/COMMIT/    its files, links to ../../blobs/HASH
//
// Nothing is downloaded: only models that another program has put there are found.
#pragma once

#include <optional>
#include <string>

#include "ipc/base/result.hpp"

namespace paceline {

/// Whether `name` is of the form owner/name, which a model on the hub has and a path may have.
[[nodiscard]] bool is_hub_name(const std::string& name);

/// The folder of the snapshot that refs/main of `name` names, or nothing: the cache `hub` does not
/// have the model. Errors: BadFile: it has it, but no such snapshot, or a file of it is a link that
/// leads out of the model's folder or to nothing.
[[nodiscard]] Result<std::optional<std::string>> find_in_hub(const std::string& hub,
                                                             const std::string& name);

}  // namespace paceline
