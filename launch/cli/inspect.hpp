// `paceline inspect MODEL`: what a model file, or a shape, holds and what it would need in memory.
#pragma once

#include <string>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"

namespace paceline {

struct InspectOptions {
    ModelOptions model;           // model, random; context: for the size of the KV cache
    std::string format = "text";  // text, json
    bool all_tensors = false;     // a line per tensor, not per kind of tensor
};

Command add_inspect(Command& app, InspectOptions& options);
int run_inspect(const InspectOptions& options, const Environment& environment);

}  // namespace paceline
