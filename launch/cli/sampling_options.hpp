// The sampling options of the command line, and the SamplingParams they become.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/command.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline {

struct SamplingOptions {
    SamplingParams params;
    std::vector<std::string> bias_words;  // --logit-bias ID=VALUE, as typed
};

void add_sampling_options(Command& app, SamplingOptions& options);

/// Errors: BadArgument naming option, value and what is allowed.
[[nodiscard]] Result<SamplingParams> sampling_params(const SamplingOptions& options,
                                                     int vocab_size);

/// A remark for options that change nothing as given (--top-p without --temp); empty if none.
[[nodiscard]] std::string idle_sampling_options(const SamplingParams& params);

}  // namespace paceline
