// `paceline plan`: which method decodes a model fastest on this machine: predicted for all methods
// that fit, measured for the most promising ones, and remembered for `--method auto`.
#pragma once

#include <optional>
#include <string>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"

namespace paceline {

struct PlanOptions {
    ModelOptions model;
    std::string draft_model;
    std::string prompts_file;  // of the trials; empty: the built-in ones
    int prompts = 4;
    int max_tokens = 96;
    int trials = 4;
    std::optional<double> acceptance;
    std::optional<double> exit_accuracy;
    std::string out;  // the configuration of the chosen method
};

Command add_plan(Command& app, PlanOptions& options);
int run_plan(const PlanOptions& options, const Environment& environment);

}  // namespace paceline
