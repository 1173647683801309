#include "launch/api/answer_report.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

/// The four figures of one part of the work: "prompt_n", "prompt_ms", ...
void add_part(Json& json, const std::string& part, std::int64_t tokens, AnswerStats::Micros time) {
    const double ms = std::chrono::duration<double, std::milli>(time).count();
    json[part + "_n"] = tokens;
    json[part + "_ms"] = ms;
    json[part + "_per_token_ms"] = tokens > 0 ? ms / static_cast<double>(tokens) : 0.0;
    json[part + "_per_second"] = ms > 0.0 ? 1e3 / ms * static_cast<double>(tokens) : 0.0;
}

}  // namespace

AnswerReport::AnswerReport(const std::vector<std::int32_t>& prompt_tokens,
                           int answers,
                           std::uint64_t seed,
                           std::string method,
                           int gamma)
    : answers_{answers},
      seed_{seed},
      method_{std::move(method)},
      gamma_{gamma},
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
    prompt_time_ = std::max(prompt_time_, stats.prefill_time());
    const AnswerStats::Micros decoded = stats.last_token - stats.prefilled;
    if (stats.last_token.count() > 0) answer_time_ = std::max(answer_time_, decoded);
}

Json AnswerReport::usage() const {
    return {{"prompt_tokens", prompt_tokens_},
            {"completion_tokens", completion_tokens_},
            {"total_tokens", prompt_tokens_ + completion_tokens_},
            {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}}},
            {"completion_tokens_details",
             {{"reasoning_tokens", thought_tokens_},
              {"accepted_prediction_tokens", verdicts_.accepted},
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

Json AnswerReport::timings() const {
    Json json{{"cache_n", cached_tokens_}};
    add_part(json, "prompt", prompt_tokens_ - cached_tokens_, prompt_time_);
    add_part(json, "predicted", completion_tokens_, answer_time_);
    json["draft_n"] = verdicts_.candidates;
    json["draft_n_accepted"] = verdicts_.accepted;
    return json;
}

Json AnswerReport::metrics() const {
    // [k]: verify batches of which k candidates were accepted.
    const auto length = static_cast<std::size_t>(gamma_);
    Json histogram = Json::array();
    std::int64_t at_least = verdicts_.drafts;
    for (std::size_t i = 0; i <= length; ++i) {
        const std::int64_t more = i < length ? verdicts_.accepted_at[i] : 0;
        histogram.push_back(at_least - more);
        at_least = more;
    }
    const double rate = verdicts_.candidates > 0 ? static_cast<double>(verdicts_.accepted) /
                                                       static_cast<double>(verdicts_.candidates)
                                                 : 0.0;
    return {{"speculative_decoding",
             {{"mean_acceptance_length", verdicts_.mean_acceptance_length()},
              {"draft_acceptance_rate", rate},
              {"acceptance_histogram", std::move(histogram)},
              {"num_spec_steps", verdicts_.drafts},
              {"num_accepted_draft_tokens", verdicts_.accepted},
              {"num_draft_tokens", verdicts_.candidates},
              {"num_spec_tokens", gamma_}}}};
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
