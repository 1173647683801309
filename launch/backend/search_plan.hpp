// plan_search(): from the keys of a search for a skip set to its options, with the state of an earlier run.
//
// Reads the file `state` that the configuration names, and writes and removes `state`.probe to learn whether it can
// be written. One thread.
#pragma once

#include <string_view>

#include "actors/self_draft/search_trials.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/search_config.hpp"
#include "launch/config/skip_config.hpp"

namespace paceline {

/// Of a target of `layers` layers. Errors: BadFile or BadArgument naming `table` ("[draft]"), key and file: a
/// state that cannot be read, that is of another search or model, or that cannot be written; a ratio that leaves
/// nothing to search.
[[nodiscard]] Result<SearchTrialOptions> plan_search(const SkipConfig& skip,
                                                     const SearchConfig& search,
                                                     int layers,
                                                     std::string_view table);

}  // namespace paceline
