// `paceline generate`: answers to many prompts, with the target's distribution at each position.
#pragma once

#include <string>
#include <vector>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/load/sampling_options.hpp"

namespace paceline {

struct GenerateOptions {
    ModelOptions model;
    std::vector<std::string> prompts_files;
    std::string folder;
    int max_tokens = 256;
    int requests = 32;
    int samples = 1;
    int top = 16;
    std::string hidden;  // "15,20,30"; empty: none
    std::string method;  // auto, plain or a pipeline's; empty: not given
    int shard_size = 500;
    SamplingOptions sampling;
};

Command add_generate(Command& app, GenerateOptions& options);
int run_generate(const GenerateOptions& options, const Environment& environment);

}  // namespace paceline
