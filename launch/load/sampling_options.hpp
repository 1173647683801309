// The sampling options of the command line, and the SamplingParams they become.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/command.hpp"
#include "model/sampling/sampling.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct SamplingOptions {
    SamplingParams params;
    std::vector<std::string> bias_words;  // --logit-bias ID=VALUE, as typed
    bool generation_config = false;       // what is not given is as the model's folder says
};

void add_sampling_options(Command& app, SamplingOptions& options);

/// --generation-config, for commands that answer.
void add_generation_config_option(Command& app, SamplingOptions& options);

/// `options` with what the model's generation_config.json says in the place of values that are those of
/// an option that was not given. Errors: BadArgument: it is asked for, and the model has none.
[[nodiscard]] Result<SamplingOptions> with_generation_config(SamplingOptions options,
                                                             const ModelFile& file);

/// Errors: BadArgument naming option, value and what is allowed.
[[nodiscard]] Result<SamplingParams> sampling_params(const SamplingOptions& options,
                                                     int vocab_size);

/// A remark for options that change nothing as given (--top-p without --temp); empty if none.
[[nodiscard]] std::string idle_sampling_options(const SamplingOptions& options);

}  // namespace paceline
