// AccountGain: what the account of a running pipeline shows of its method, for the record: how many
// times plain decoding's speed the tokens since the last look had.
//
// The account's figures are sums since the first segment was started; a look takes the difference.
// A first segment that was replaced begins at zero again. Looks at too few tokens of answers that
// are over give nothing, and the next one has them as well. Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "actors/decoding/answer.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/plan/method_record.hpp"
#include "launch/session/pipeline_usage.hpp"

namespace paceline {

/// Whether what the account of such a pipeline measures in between is plain decoding's speed: its
/// target is in one process, as plain decoding's is, and something is drafted. On a CPU not by a
/// model that computes ahead: it has cores that plain decoding would use as well.
[[nodiscard]] bool account_sees_plain(const PipelineConfig& config);

class AccountGain {
public:
    /// `verdicts`: of answers that were over before the pipeline began.
    explicit AccountGain(PipelineConfig config, const VerdictTally& verdicts = {})
        : config_{std::move(config)}, verdicts_before_{verdicts} {}

    /// `verdicts`: of the answers that are over. A run of the method, if they have `tokens_min`
    /// tokens since the last one, and the account knows what plain decoding takes.
    [[nodiscard]] std::optional<MethodRate> since_last(
        const AccountFigures& now,
        const VerdictTally& verdicts,
        std::int64_t tokens_min = MethodRecord::kTokensMin);

private:
    PipelineConfig config_;
    AccountFigures before_ = {};
    VerdictTally verdicts_before_ = {};
};

}  // namespace paceline
