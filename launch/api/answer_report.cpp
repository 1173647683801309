#include "launch/api/answer_report.hpp"

#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

AnswerReport::AnswerReport(const std::vector<std::int32_t>& prompt_tokens,
                           int answers,
                           std::uint64_t seed,
                           std::string method)
    : answers_{answers},
      seed_{seed},
      method_{std::move(method)},
      prompt_tokens_{std::accumulate(prompt_tokens.begin(), prompt_tokens.end(), std::int64_t{0})} {
}

void AnswerReport::add(std::size_t choice, const AnswerStats& stats) {
    if (choice % static_cast<std::size_t>(answers_) == 0) {
        cached_tokens_ += stats.cached_tokens;
        matched_tokens_ += stats.matched_tokens;
    }
    verdicts_.add(stats.verdicts);
    replays_ += stats.replays;
    preemptions_ += stats.preemptions;
}

Json AnswerReport::usage() const {
    return {{"prompt_tokens", prompt_tokens_},
            {"completion_tokens", completion_tokens_},
            {"total_tokens", prompt_tokens_ + completion_tokens_},
            {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}}},
            {"completion_tokens_details",
             {{"accepted_prediction_tokens", verdicts_.accepted},
              {"rejected_prediction_tokens", verdicts_.candidates - verdicts_.accepted}}}};
}

Json AnswerReport::paceline() const {
    std::size_t positions = 0;
    for (std::size_t i = 0; i < verdicts_.accepted_at.size(); ++i) {
        if (verdicts_.accepted_at[i] > 0) positions = i + 1;
    }
    Json accepted_at = Json::array();
    for (std::size_t i = 0; i < positions; ++i) accepted_at.push_back(verdicts_.accepted_at[i]);
    return {{"method", method_},
            {"seed", seed_},
            {"batches", verdicts_.batches},
            {"drafted", verdicts_.candidates},
            {"accepted", verdicts_.accepted},
            {"accepted_at", std::move(accepted_at)},
            {"cached_tokens", cached_tokens_},
            {"matched_tokens", matched_tokens_},
            {"replays", replays_},
            {"preemptions", preemptions_}};
}

const char* finish_reason(FinishReason finish) {
    switch (finish) {
        case FinishReason::EndToken:
        case FinishReason::StopString:
            return "stop";
        case FinishReason::MaxTokens:
        case FinishReason::ContextFull:
            return "length";
        default:
            return nullptr;
    }
}

}  // namespace paceline::serve
