// `paceline top`: what the pipelines of this user are doing right now.
//
// Looks only (top_scan.hpp): no pipeline notices, none needs to be told to be looked at. On a
// terminal the table is redrawn in place until q, Ctrl-C or the end of the pipelines, and waited for where
// none is running yet; anywhere else, or with --once, it is printed once.
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
