// `paceline inspect MODEL`: what a model file holds and what it would need in memory.
#pragma once

#include <string>

#include <CLI/App.hpp>

#include "launch/environment.hpp"

namespace paceline {

struct InspectOptions {
    std::string model;
    std::string format = "text";  // text, json
    bool all_tensors = false;     // a line per tensor, not per kind of tensor
    int context = 0;              // for the size of the KV cache; 0: as `run` would have it
};

CLI::App* add_inspect(CLI::App& app, InspectOptions& options);
int run_inspect(const InspectOptions& options, const Environment& environment);

}  // namespace paceline
