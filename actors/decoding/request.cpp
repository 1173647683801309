#include "actors/decoding/request.hpp"

#include <fmt/core.h>
#include <span>
#include <string>
#include <utility>

#include "actors/decoding/request_checks.hpp"

namespace paceline {
namespace {

Status validate_tokens(const std::string& field, std::span<const TokenId> tokens, int vocab_size) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
        return request_out_of_range(
            fmt::format("{}[{}]", field, i), std::to_string(tokens[i]),
            fmt::format("a token of the vocabulary, 0 .. {}", vocab_size - 1));
    }
    return {};
}

Status validate_speculation(const SpeculationLimits& limits) {
    if (limits.gamma < 0 || limits.gamma > static_cast<std::int32_t>(kGammaMax)) {
        return request_out_of_range("speculation.gamma", std::to_string(limits.gamma),
                                    fmt::format("0 (as the pipeline) .. {}", kGammaMax));
    }
    const std::pair<const char*, float> thresholds[] = {
        {"speculation.verify_reach_min", limits.verify_reach_min},
        {"speculation.draft_reach_min", limits.draft_reach_min},
        {"speculation.confidence_min", limits.confidence_min}};
    for (const auto& [field, value] : thresholds) {
        if (value >= 0.0F && value <= 1.0F) continue;  // NaN is refused
        return request_out_of_range(field, fmt::format("{}", value), "0 .. 1");
    }
    return {};
}

Status validate_grammar(const Request& request) {
    if (request.grammar.any() && request.compiled == nullptr)
        return Error{Errc::BadArgument, "request: its grammar is not compiled"};
    if (request.compiled == nullptr || !request.end_tokens.empty()) return {};
    return Error{Errc::BadArgument,
                 "request: an answer with a grammar needs end tokens, which end it"};
}

}  // namespace

Error request_out_of_range(const std::string& field,
                           const std::string& value,
                           const std::string& range) {
    return Error{Errc::BadArgument, "request: " + field + " = " + value + ", must be " + range};
}

Status check_room(const Request& request, std::int32_t kv_slots) {
    if (request.text.empty()) return Error{Errc::BadArgument, "request: the prompt is empty"};
    if (request.text.size() > kTextTokensMax) {
        return request_out_of_range("text", fmt::format("{} tokens", request.text.size()),
                                    fmt::format("at most {}", kTextTokensMax));
    }
    if (request.cache_salt.size() > kCacheSaltMax) {
        return request_out_of_range("cache_salt",
                                    fmt::format("{} bytes", request.cache_salt.size()),
                                    fmt::format("at most {}", kCacheSaltMax));
    }
    const auto length = static_cast<std::int32_t>(request.text.size());
    if (request.context < 1 || request.context > kv_slots) {
        return request_out_of_range("context", std::to_string(request.context),
                                    fmt::format("1 .. {}, the KV slots of the stages", kv_slots));
    }
    if (length >= request.context) {
        return Error{
            Errc::BadArgument,
            fmt::format(
                "request: the prompt has {} tokens, which leaves no room in the context of {}",
                length, request.context)};
    }
    return {};
}

Status check_answer(const Request& request, std::int32_t replayed, int vocab_size) {
    if (request.max_tokens != kUnlimitedTokens && request.max_tokens <= replayed) {
        return request_out_of_range(
            "max_tokens", std::to_string(request.max_tokens),
            fmt::format("more than the {} tokens that are there already, or -1", replayed));
    }
    if (request.end_tokens.size() > kEndTokensMax) {
        return request_out_of_range("end_tokens",
                                    fmt::format("{} tokens", request.end_tokens.size()),
                                    fmt::format("at most {}", kEndTokensMax));
    }
    if (Status tokens = validate_tokens("text", request.text, vocab_size); !tokens) return tokens;
    if (Status tokens = validate_tokens("end_tokens", request.end_tokens, vocab_size); !tokens) {
        return tokens;
    }
    if (Status limits = validate_speculation(request.speculation); !limits) return limits;
    if (Status allowed = validate_grammar(request); !allowed) return allowed;
    if (request.scores.top < 0 || request.scores.top > kTopScoresMax) {
        return request_out_of_range("scores.top", std::to_string(request.scores.top),
                                    fmt::format("0 .. {}", kTopScoresMax));
    }
    return validate(request.sampling, vocab_size);
}

Status validate(const Request& request, int vocab_size, std::int32_t kv_slots) {
    if (Status room = check_room(request, kv_slots); !room) return room;
    return check_answer(request, 0, vocab_size);
}

}  // namespace paceline
