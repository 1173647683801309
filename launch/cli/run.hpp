// `paceline run`: a prompt in, text out; or a chat.
#pragma once

#include <string>
#include <vector>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/base/progress_bar.hpp"
#include "launch/base/text_input.hpp"
#include "launch/cluster/meeting.hpp"
#include "launch/load/grammar_options.hpp"
#include "launch/load/sampling_options.hpp"

namespace paceline {

struct RunOptions {
    ModelOptions model;
    TextSource prompt;
    std::string system;
    std::string tools_file;  // --tools
    bool raw = false;
    bool interactive = false;
    int max_tokens = -1;
    std::vector<std::string> stop_strings;
    SamplingOptions sampling;
    std::string config_file;                  // --config
    std::string method;                       // auto, plain, or a pipeline's; empty: not given
    std::optional<std::string> list_methods;  // "": the families; "all"
    bool list_settings = false;
    bool print_config = false;
    std::string draft_model;   // --draft-model
    std::string gpus;          // --gpus: "0,2" or "all"
    std::string machine_file;  // --machine
    MeetingOptions meeting;    // --node, --meet, --key, --node-name
    bool dry_run = false;      // --dry-run
    bool figures = false;      // --figures
    bool baseline = false;     // --baseline
    GrammarOptions grammar;    // --json-schema, --grammar
    int logprobs = -1;         // --logprobs: most probable tokens beside each; -1: none are wanted
    std::string ids_file;
    std::string stats_file;
    std::string trace_file;
    std::string log_file;
    bool verbose = false;
    bool quiet = false;

    /// Whether the method is to be chosen (launch/plan): neither --method nor --config was given.
    [[nodiscard]] bool is_auto() const { return config_file.empty() && method == "auto"; }
    /// Whether other processes decode: --config, or a method that needs them. Of auto: they may.
    [[nodiscard]] bool uses_stages() const { return !config_file.empty() || method != "plain"; }
    /// Whether stages are to be placed on GPUs.
    [[nodiscard]] bool wants_gpus() const {
        return dry_run || !gpus.empty() || !machine_file.empty();
    }
    /// Bars that log lines would cut through are not drawn.
    [[nodiscard]] Show bars(const Environment& environment) const {
        return quiet || verbose ? Show::No : bars_on(environment);
    }
};

Command add_run(Command& app, RunOptions& options);
int run_run(const RunOptions& options, const Environment& environment);

}  // namespace paceline
