// PartsSearch: where trained parts are looked for (docs/trained-parts.md), and draft models by
// name.
//
// A plain value; reads the names of folders, no part.
#pragma once

#include <string>
#include <vector>

#include "launch/base/environment.hpp"

namespace paceline {

struct PartsSearch {
    std::string option;                // --parts: a folder, "none", or empty
    std::vector<std::string> folders;  // searched if `option` is empty, in this order
    std::string hub_cache = {};        // of draft models that are named owner/name
};

/// The word of --parts that switches parts off.
inline constexpr const char* kNoParts = "none";

/// Where this program looks.
[[nodiscard]] PartsSearch parts_search(const std::string& option, const Environment& environment);

}  // namespace paceline
