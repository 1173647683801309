#include "launch/plan/method_trial.hpp"

#include <algorithm>

#include "launch/base/run_log.hpp"

namespace paceline {

double draft_acceptance(const PipelineConfig& config, const VerdictTally& verdicts) {
    const bool chains_of_a_model = config.draft && config.draft->computes() &&
                                   !config.draft->looks_up() && !config.draft->observes() &&
                                   !config.exit && !config.self_draft;
    const auto ends = static_cast<double>(verdicts.drafts);
    if (!chains_of_a_model || ends < 8.0) return 0.0;
    const auto accepted = static_cast<double>(verdicts.accepted);
    return accepted / (accepted + ends);
}

Result<MethodRate> try_method(const OpenedModel& model,
                              const ModelOptions& options,
                              const ResolvedConfig& pipeline,
                              const CheckTask& task,
                              const Environment& environment) {
    Result<RunLog> log = RunLog::open("", false);
    if (!log) return log.error();
    const Result<CheckResult> result =
        check_pipeline(model, options, pipeline, task, environment, log.value());
    if (!result) return result.error();
    const CheckResult& check = result.value();
    if (!check.all_equal())
        return Error{Errc::Protocol,
                     pipeline.config.name +
                         ": an answer differs from plain decoding's; please report this, with the "
                         "command (paceline check shows where)"};
    std::vector<double> gains;
    for (std::size_t i = 0; i < check.answers.size(); ++i) {
        const double plain = check.plain[i].stats.decode_rate();
        const double own = check.answers[i].stats.decode_rate();
        if (plain > 0.0 && own > 0.0) gains.push_back(own / plain);
    }
    if (gains.empty())
        return Error{Errc::BadArgument, "the answers are too short to compare speeds"};
    const auto middle = gains.begin() + static_cast<std::ptrdiff_t>(gains.size() / 2);
    std::nth_element(gains.begin(), middle, gains.end());
    return MethodRate{.gain = *middle,
                      .acceptance = draft_acceptance(pipeline.config, check.stats.verdicts),
                      .tokens_per_second = check.stats.rate,
                      .runs = static_cast<std::int64_t>(gains.size())};
}

}  // namespace paceline
