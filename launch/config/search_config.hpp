// SearchConfig: SWIFT's search for the skipped sub-layers (choose = "search"). [draft] with
// source = "skip-layers" and [self_draft] with source = "skip" share its keys.
//
// Plain values; any thread.
#pragma once

#include <string>
#include <vector>

#include "actors/self_draft/skip_search.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/skip_config.hpp"

namespace paceline {

struct SearchConfig {
    int window = 32;
    double optimise_share = 0.01;
    std::string state = {};  // a file; empty: none
    /// Of the search. Layers, ratio and the layers that are kept are set by plan_search()
    /// (launch/load/search_plan.hpp).
    SkipSearchOptions options = {};
};

/// All but `optimise_share`, which [self_draft] has for another choice too.
[[nodiscard]] std::vector<Field> fields_of(SearchConfig& search);
/// Errors: BadArgument for a key of the search, as above, without choose = "search".
[[nodiscard]] Status check_search(const TomlTable& table, bool searches);

}  // namespace paceline
