// The sampling options of the command line, and the SamplingParams they become.
#pragma once

#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "launch/base/command.hpp"
#include "model/sampling/sampling.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Options that the command line has, whatever their values are.
struct GivenSampling {
    bool temperature = false, top_k = false, top_p = false, min_p = false;
    bool repetition_penalty = false, penalty_window = false;
};

struct SamplingOptions {
    SamplingParams params;
    GivenSampling given;
    std::vector<std::string> bias_words;  // --logit-bias ID=VALUE, as typed
    bool generation_config = false;       // what is not given is as the model's folder says
};

void add_sampling_options(Command& app, SamplingOptions& options);

/// --generation-config, for commands that answer.
void add_generation_config_option(Command& app, SamplingOptions& options);

/// `options` with what the model's generation_config.json says in the place of options that were
/// not given, as transformers would draw: with `--temp` above 0 it would sample, and a repetition
/// penalty of the file counts prompt and answer. Errors: BadArgument: it is asked for, and the
/// model has none; BadFile, naming file, key and the option that counts instead: a value that
/// nothing can be drawn with.
[[nodiscard]] Result<SamplingOptions> with_generation_config(SamplingOptions options,
                                                             const ModelFile& file);

/// A remark on what of that file changes the text in transformers and not here, for a request that
/// draws with `drawn`; empty: nothing, or it was not asked for.
[[nodiscard]] std::string generation_config_remark(const SamplingOptions& options,
                                                   const SamplingParams& drawn,
                                                   const ModelFile& file);

/// Errors: BadArgument naming option, value and what is allowed.
[[nodiscard]] Result<SamplingParams> sampling_params(const SamplingOptions& options,
                                                     int vocab_size);

/// A remark for options that change nothing as given (--top-p without --temp); empty if none.
[[nodiscard]] std::string idle_sampling_options(const SamplingOptions& options);

}  // namespace paceline
