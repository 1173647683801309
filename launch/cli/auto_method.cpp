#include "launch/cli/auto_method.hpp"

#include "launch/base/device.hpp"
#include "launch/config/method_list.hpp"
#include "launch/load/parts_search.hpp"
#include "launch/placement/method_fit.hpp"
#include "launch/plan/account_gain.hpp"
#include "launch/plan/method_trial.hpp"

namespace paceline {

AutoMethod::AutoMethod(const RunOptions& options,
                       const ModelFile& file,
                       bool drawn,
                       const Environment& environment)
    : history_{
          file, options.model, options.draft_model, environment.cache_folder, {.drawn = drawn}} {
    history_.leave_out_if(own_part_lacking(file, parts_search(options.model.parts, environment)));
}

AutoChoice AutoMethod::choose(const RunOptions& options) const {
    if (!device_of(options.model).exact)
        return {.method = kPlainMethod, .reason = "only plain decoding gives --exact off"};
    if (!device_of(options.model).others.empty())
        return {.method = kPlainMethod,
                .reason = "--device names several GPUs, where other methods need --method"};
    // What is asked for of stages needs some: plain decoding in a stage then.
    const bool stages = options.figures || !options.trace_file.empty();
    return history_.choose(stages ? kPlainPipeline : kPlainMethod);
}

void AutoMethod::learn(const RunOptions& options,
                       const RunStats& run,
                       const std::optional<PipelineStats>& pipeline,
                       const std::optional<PipelineConfig>& written) {
    const bool named = options.config_file.empty() && !options.wants_gpus();
    const auto tokens = static_cast<std::int64_t>(run.answer.generated_tokens);
    if (options.method == kPlainMethod && tokens >= MethodRecord::kTokensMin) history_.add_plain(1);
    const bool comparable =
        pipeline && pipeline->speculation_gain > 0.0 && written && account_sees_plain(*written);
    if (!named || !comparable || tokens < MethodRecord::kTokensMin) return;
    history_.add(options.method, {.gain = pipeline->speculation_gain,
                                  .acceptance = draft_acceptance(*written, pipeline->verdicts),
                                  .tokens_per_second = run.answer.decode_rate(),
                                  .runs = 1});
}

}  // namespace paceline
