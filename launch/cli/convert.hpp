// `paceline convert`: a Hugging Face folder or a wide GGUF file as one packed GGUF file.
//
// The format: model/weights/convert.hpp. The output is an UnfinishedFile until it is complete;
// Ctrl-C leaves no file.
#pragma once

#include <string>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"

namespace paceline {

struct ConvertCommandOptions {
    std::string model;
    std::string output;
    std::string type;
    int threads = 0;  // 0: one for each core that this process may use
    bool force = false;
    bool quiet = false;
};

Command add_convert(Command& app, ConvertCommandOptions& options);
int run_convert(const ConvertCommandOptions& options, const Environment& environment);

}  // namespace paceline
