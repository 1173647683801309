// `paceline search`: finds, before a run, the sub-layers that a draft of the target itself can do
// without (Draft & Verify, section 4; skip_trials.hpp says what is measured).
#pragma once

#include <string>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/cli/skip_trials.hpp"

namespace paceline {

struct SearchOptions {
    ModelOptions model;
    std::string prompts_file = {};            // empty: the built-in ones
    int first = 8;                            // prompts
    std::string percents = "10,20,30,40,50";  // of the sub-layers, skipped
    int trials = 100;                         // of each
    int keep_first = 1;
    int keep_last = 1;
    int gamma = 12;
    std::uint64_t seed = 1;
    SkipTrialOptions measure = {};
    std::string out = {};  // a configuration to write
};

Command add_search(Command& app, SearchOptions& options);
int run_search(const SearchOptions& options, const Environment& environment);

}  // namespace paceline
