// `paceline check`: compares the answers of a pipeline with plain decoding, and measures its cost.
#pragma once

#include <string>
#include <vector>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/load/grammar_options.hpp"
#include "launch/load/sampling_options.hpp"

namespace paceline {

struct CheckOptions {
    ModelOptions model;
    std::string config_file;  // --config
    std::string method;
    std::string draft_model;
    std::vector<std::string> settings;  // --set
    std::string prompts_file;           // empty: the built-in set
    int prompts_max = 0;                // 0: all of them
    int max_tokens = 64;
    int at_once = 1;
    std::uint64_t kv_memory = 0;
    GrammarOptions grammar;
    SamplingOptions sampling;
    int logprobs = -1;  // --logprobs; -1: they are not compared
    int kills = 0;
    int stalls = 0;
    std::vector<std::string> delays;
    std::string json_file;
    std::string log_file;
    bool verbose = false;
};

Command add_check(Command& app, CheckOptions& options);
int run_check(const CheckOptions& options, const Environment& environment);

}  // namespace paceline
