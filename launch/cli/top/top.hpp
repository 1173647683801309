// `paceline top`: the current activity of this user's pipelines.
//
// It only reads shared memory (top_scan.hpp), which the pipelines do not notice and need not
// enable. On a terminal the table is redrawn in place until q, Ctrl-C or the end of the pipelines;
// if none is running yet it waits for one. Elsewhere, or with --once, the table is printed once.
#pragma once

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"

namespace paceline {

struct TopOptions {
    double interval_seconds = 1.0;
    int pid = 0;  // of a conductor; 0: all
    bool once = false;
};

Command add_top(Command& app, TopOptions& options);
int run_top(const TopOptions& options, const Environment& environment);

}  // namespace paceline
