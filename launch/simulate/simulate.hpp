// `paceline simulate`: the speed of a pipeline on devices that are not available, with the text of
// the real model and measured costs; also measures these costs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/load/sampling_options.hpp"
#include "launch/simulate/oracle_phases.hpp"

namespace paceline {

struct SimulateOptions {
    ModelOptions model;
    std::string config_file;  // --config
    std::string method;
    std::string draft_model;
    std::string costs_file;
    std::optional<std::string> prompt;
    std::string prompts_file;
    int prompts_max = 0;               // 0: all of the file
    std::optional<double> acceptance;  // --acceptance, and the next two: of a shape (--random)
    std::optional<double> exit_accuracy;
    std::optional<double> reliability;
    double overconfidence = 1.0;
    OracleBadPhases bad_phases;  // share 0: none
    int prompt_tokens = 128;
    int max_tokens = 128;
    int at_once = 1;
    SamplingOptions sampling;
    int device_threads = 1;
    int busy_neighbours = 0;
    std::vector<std::string> shared_devices;  // names between commas, of each
    std::optional<double> hop_micros;
    std::vector<std::string> settings;  // --set
    std::vector<std::string> sweeps;    // --sweep
    bool check = false;
    bool baseline = false;
    std::string trace_file;
    std::string json_file;

    std::string measure_file;  // --measure-costs
    std::vector<std::string> measure_drafts;
    std::string rows = "1,2,4,8,16,32,64";
    std::string contexts = "64,512,1536";
    std::string depths;
    std::string threads;
    std::string neighbours = "0,1";
    std::string short_lists = "0";
    int samples = 5;
};

Command add_simulate(Command& app, SimulateOptions& options);
int run_simulate(const SimulateOptions& options, const Environment& environment);

}  // namespace paceline
