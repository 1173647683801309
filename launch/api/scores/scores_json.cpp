#include "launch/api/scores/scores_json.hpp"

#include <cmath>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/utf8.hpp"

namespace paceline::serve {
namespace {

using ScoresJson = nlohmann::ordered_json;

double written(float log_prob) {
    return std::isfinite(log_prob) ? double{log_prob} : kExcludedLogProb;
}

ScoresJson entry(const Tokenizer& tokenizer, TokenId token, float log_prob) {
    ScoresJson bytes = ScoresJson::array();
    for (const char c : tokenizer.bytes_of(token))
        bytes.push_back(static_cast<unsigned>(static_cast<unsigned char>(c)));
    return {{"token", token_label(tokenizer, token)},
            {"logprob", written(log_prob)},
            {"bytes", std::move(bytes)}};
}

/// Bytes that begin a character.
std::size_t characters(std::string_view text) {
    std::size_t count = 0;
    for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0U) != 0x80U ? 1 : 0;
    return count;
}

}  // namespace

std::string token_label(const Tokenizer& tokenizer, TokenId token) {
    const std::string_view bytes = tokenizer.bytes_of(token);
    if (utf8::valid_prefix(bytes) == bytes.size()) return std::string{bytes};
    std::string label = "bytes:";
    for (const char c : bytes) label += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    return label;
}

ScoresJson chat_scores_json(const Tokenizer& tokenizer,
                            std::span<const TokenId> tokens,
                            std::span<const TokenScores> scores) {
    PACE_CHECK(tokens.size() == scores.size(), "another number of scores than of tokens");
    ScoresJson all = ScoresJson::array();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        ScoresJson one = entry(tokenizer, tokens[i], scores[i].log_prob);
        one["top_logprobs"] = ScoresJson::array();
        for (const ScoredToken& top : scores[i].top)
            one["top_logprobs"].push_back(entry(tokenizer, top.token, top.log_prob));
        all.push_back(std::move(one));
    }
    return all;
}

void CompletionScores::add(TokenId token, const TokenScores& scores) {
    const std::string label = token_label(*tokenizer_, token);
    tokens_.push_back(label);
    offsets_.push_back(offset_);
    if (!tokenizer_->is_control(token)) offset_ += characters(tokenizer_->bytes_of(token));
    if (!scores.scored()) {
        log_probs_.push_back(nullptr);
        top_.push_back(nullptr);
        return;
    }
    log_probs_.push_back(written(scores.log_prob));
    Json top = Json::object();
    for (const ScoredToken& each : scores.top)
        top.emplace(token_label(*tokenizer_, each.token), written(each.log_prob));
    // The token itself is there, however improbable.
    top.emplace(label, written(scores.log_prob));
    top_.push_back(std::move(top));
}

nlohmann::ordered_json CompletionScores::take() {
    return {{"tokens", std::exchange(tokens_, Json::array())},
            {"token_logprobs", std::exchange(log_probs_, Json::array())},
            {"top_logprobs", std::exchange(top_, Json::array())},
            {"text_offset", std::exchange(offsets_, Json::array())}};
}

}  // namespace paceline::serve
