// plan_search(): from the keys of a search for a skip set to its options, with the state of an
// earlier run.
//
// Reads the file `state` that the configuration names. A save writes a temporary file beside it and
// renames it (model/weights/unfinished_file.hpp). When a save fails (disk full, folder removed),
// the search continues; the first failure is a warning in the log. Functions: one thread.
// SearchTrialOptions::save runs on the thread of a job.
#pragma once

#include <string_view>

#include "actors/self_draft/search_trials.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/search_config.hpp"
#include "launch/config/skip_config.hpp"

namespace paceline {

/// Checks that the state file can be written, so that a run fails at its start and not after hours
/// of search. Not called by a stage, which must be able to restart while the disk is full. Leaves
/// no file behind. Errors: BadArgument naming `table` ("[draft]"), key and file.
[[nodiscard]] Status check_state_kept(const SearchConfig& search, std::string_view table);

/// The options for a target of `layers` layers. Errors: BadFile or BadArgument naming `table`, key
/// and file: a state that cannot be read or belongs to another search or model; a ratio that leaves
/// nothing to search.
[[nodiscard]] Result<SearchTrialOptions> plan_search(const SkipConfig& skip,
                                                     const SearchConfig& search,
                                                     int layers,
                                                     std::string_view table);

}  // namespace paceline
