#include "launch/cli/auto_method.hpp"

#include <algorithm>

#include "launch/base/device.hpp"
#include "launch/config/method_list.hpp"
#include "launch/plan/method_trial.hpp"
#include "launch/session/pipeline_start.hpp"
#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

std::size_t core_count(const ModelOptions& model) {
    const Result<Machine> machine = read_machine();
    return machine ? usable_cores(machine.value(), model).size() : 1;
}

}  // namespace

AutoMethod::AutoMethod(const RunOptions& options,
                       const ModelFile& file,
                       const Environment& environment)
    : cores_{core_count(options.model)},
      key_{record_key(file, options.model, options.draft_model, cores_)},
      records_{environment.cache_folder},
      record_{records_.read(key_)} {}

AutoChoice AutoMethod::choose(const RunOptions& options) const {
    // What is asked for of stages needs some: plain decoding in a stage then.
    const bool stages = options.figures || !options.trace_file.empty();
    const std::string plain = stages ? "autoregressive" : kPlainMethod;
    if (!device_of(options.model).exact)
        return {.method = kPlainMethod, .reason = "--exact off is of plain decoding"};
    std::vector<std::string> known;
    for (const Method& method : methods()) known.emplace_back(method.name);
    return choose_method(record_, cores_, known, plain);
}

void AutoMethod::learn(const RunOptions& options,
                       const RunStats& run,
                       const std::optional<PipelineStats>& pipeline,
                       const std::optional<PipelineConfig>& written) {
    const bool named = options.config_file.empty() && !options.wants_gpus();
    const auto tokens = static_cast<std::int64_t>(run.answer.generated_tokens);
    // What the account measured in between is plain decoding's speed only where the target is in
    // one process, as plain decoding is.
    const bool comparable = pipeline && pipeline->speculation_gain > 0.0 && written &&
                            written->segments() == 1 && written->draft.has_value();
    if (!named || !comparable || tokens < MethodRecord::kTokensMin) return;
    record_ = records_.read(key_);  // another run may have ended meanwhile
    record_.add(options.method, {.gain = pipeline->speculation_gain,
                                 .acceptance = draft_acceptance(*written, pipeline->verdicts),
                                 .tokens_per_second = run.answer.decode_rate(),
                                 .runs = 1});
    (void)records_.write(key_, record_);
}

}  // namespace paceline
