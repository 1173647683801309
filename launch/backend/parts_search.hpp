// PartsSearch: the folders in which trained parts are looked for (docs/trained-parts.md).
//
// A plain value; reads the names of folders, no part.
#pragma once

#include <string>
#include <vector>

#include "launch/base/environment.hpp"

namespace paceline {

struct PartsSearch {
    std::string wish;                  // --parts: a folder, "none", or empty
    std::vector<std::string> folders;  // searched without a wish, in this order
};

/// The word of --parts that switches parts off.
inline constexpr const char* kNoParts = "none";

/// Where this program looks.
[[nodiscard]] PartsSearch parts_search(const std::string& wish, const Environment& environment);

}  // namespace paceline
