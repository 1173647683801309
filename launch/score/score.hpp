// `paceline score`: what a model thinks of given texts: log probability and rank of each token.
#pragma once

#include <string>
#include <vector>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"

namespace paceline {

struct ScoreCommandOptions {
    ModelOptions model;
    std::vector<std::string> files;  // "-" is standard input
    int top = 0;
    std::string format = "table";  // table, json
    bool plain_text = false;       // control tokens in the text are only characters
};

Command add_score(Command& app, ScoreCommandOptions& options);
int run_score(const ScoreCommandOptions& options, const Environment& environment);

}  // namespace paceline
