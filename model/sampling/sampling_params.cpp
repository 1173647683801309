// validate(): what a user may ask of the sampler.
#include <cmath>
#include <string>

#include <spdlog/fmt/fmt.h>

#include "model/sampling/sampling.hpp"

namespace paceline {

namespace {

Error refuse(const char* field, float value, const char* allowed) {
    return {Errc::BadArgument, fmt::format("{} is {}, allowed is {}", field, value, allowed)};
}

Error refuse(const std::string& field, long value, const std::string& allowed) {
    return {Errc::BadArgument, fmt::format("{} is {}, allowed is {}", field, value, allowed)};
}

Status validate_bias(const SamplingParams& params, int vocab_size) {
    TokenId previous = -1;
    for (const auto& [token, bias] : params.logit_bias) {
        if (token < 0 || token >= vocab_size) {
            return refuse("logit_bias: token id", token, fmt::format("0 to {}", vocab_size - 1));
        }
        if (token <= previous) {
            return refuse("logit_bias: token id", token,
                          fmt::format("an id above the one before it ({})", previous));
        }
        const bool ban = std::isinf(bias) && bias < 0.0f;
        if (!std::isfinite(bias) && !ban) {
            return refuse(fmt::format("logit_bias of token {}", token).c_str(), bias,
                          "a finite number, or -inf to ban the token");
        }
        previous = token;
    }
    return {};
}

}  // namespace

Status validate(const SamplingParams& params, int vocab_size) {
    // The conditions are written so that NaN fails them.
    const float t = params.temperature;
    if (t != 0.0f && !(t >= kTemperatureMin && t <= kTemperatureMax)) {
        return refuse("temperature", t, "0 (greedy) or 1e-6 to 1e6");
    }
    if (params.top_k < 0) return refuse("top_k", params.top_k, "0 (all tokens) or more");
    if (!(params.top_p > 0.0f && params.top_p <= 1.0f)) {
        return refuse("top_p", params.top_p, "above 0, up to 1 (off)");
    }
    if (params.min_p != 0.0f && !(params.min_p >= kMinPMin && params.min_p < 1.0f)) {
        return refuse("min_p", params.min_p, "0 (off) or 1e-9 up to below 1");
    }
    const auto lowest = static_cast<float>(kRepetitionPenaltyMin);
    if (!(params.repetition_penalty >= lowest && params.repetition_penalty <= kPenaltyMax)) {
        return refuse("repetition_penalty", params.repetition_penalty, "0.001 to 1000 (1: off)");
    }
    if (!(std::fabs(params.presence_penalty) <= kPenaltyMax)) {
        return refuse("presence_penalty", params.presence_penalty, "-1000 to 1000 (0: off)");
    }
    if (!(std::fabs(params.frequency_penalty) <= kPenaltyMax)) {
        return refuse("frequency_penalty", params.frequency_penalty, "-1000 to 1000 (0: off)");
    }
    if (params.penalty_window < -1) {
        return refuse("penalty_window", params.penalty_window, "-1 (the whole text), 0 or more");
    }
    if (params.penalty_begin < 0) {
        return refuse("penalty_begin", params.penalty_begin, "a position, 0 or more");
    }
    return validate_bias(params, vocab_size);
}

}  // namespace paceline
