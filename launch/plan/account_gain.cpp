#include "launch/plan/account_gain.hpp"

#include "launch/plan/method_trial.hpp"

namespace paceline {

bool account_sees_plain(const PipelineConfig& config) {
    if (config.segments() != 1 || !config.draft) return false;
    const bool ahead =
        config.draft->computes() && config.draft->growth.pace != DraftPace::Sequential;
    return !ahead || config.stage_of(StageRole::Segment)->device.gpu.has_value();
}

std::optional<MethodRate> AccountGain::since_last(const AccountFigures& now,
                                                  const VerdictTally& verdicts,
                                                  std::int64_t tokens_min) {
    if (!account_sees_plain(config_)) return std::nullopt;
    if (now.incarnation != before_.incarnation) before_ = {};
    const AccountFigures since{.plain_us = now.plain_us - before_.plain_us,
                               .took_us = now.took_us - before_.took_us,
                               .plain_token_us = now.plain_token_us};
    if (verdicts.emitted - verdicts_before_.emitted < tokens_min) return std::nullopt;
    if (since.plain_token_us <= 0.0 || since.took_us <= 0.0) return std::nullopt;
    VerdictTally drafted;  // what draft_acceptance() reads
    drafted.drafts = verdicts.drafts - verdicts_before_.drafts;
    drafted.accepted = verdicts.accepted - verdicts_before_.accepted;
    before_ = now;
    verdicts_before_ = verdicts;
    return MethodRate{.gain = since.gain(),
                      .acceptance = draft_acceptance(config_, drafted),
                      .tokens_per_second = since.gain() * 1e6 / since.plain_token_us,
                      .runs = 1};
}

}  // namespace paceline
