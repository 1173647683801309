#include "launch/api/scores/scores_json.hpp"

#include <cmath>
#include <fmt/core.h>
#include <utility>

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

class ChatScores final : public ChoiceScores {
public:
    explicit ChatScores(const Tokenizer& tokenizer) : tokenizer_{tokenizer} {}

    void add(TokenId token, const TokenScores& scores) override {
        ScoresJson one = entry(tokenizer_, token, scores.log_prob);
        one["top_logprobs"] = ScoresJson::array();
        for (const ScoredToken& top : scores.top)
            one["top_logprobs"].push_back(entry(tokenizer_, top.token, top.log_prob));
        content_.push_back(std::move(one));
    }
    ScoresJson take() override {
        return {{"content", std::exchange(content_, ScoresJson::array())}, {"refusal", nullptr}};
    }
    bool empty() const override { return content_.empty(); }

private:
    const Tokenizer& tokenizer_;
    ScoresJson content_ = ScoresJson::array();
};

class CompletionScores final : public ChoiceScores {
public:
    explicit CompletionScores(const Tokenizer& tokenizer) : tokenizer_{tokenizer} {}

    void add(TokenId token, const TokenScores& scores) override {
        const std::string label = token_label(tokenizer_, token);
        tokens_.push_back(label);
        offsets_.push_back(offset_);
        if (!tokenizer_.is_control(token)) offset_ += characters(tokenizer_.bytes_of(token));
        if (!scores.scored()) {
            log_probs_.push_back(nullptr);
            top_.push_back(nullptr);
            return;
        }
        log_probs_.push_back(written(scores.log_prob));
        ScoresJson top = ScoresJson::object();
        for (const ScoredToken& each : scores.top)
            top.emplace(token_label(tokenizer_, each.token), written(each.log_prob));
        // The token itself is there, however improbable.
        top.emplace(label, written(scores.log_prob));
        top_.push_back(std::move(top));
    }
    ScoresJson take() override {
        return {{"tokens", std::exchange(tokens_, ScoresJson::array())},
                {"token_logprobs", std::exchange(log_probs_, ScoresJson::array())},
                {"top_logprobs", std::exchange(top_, ScoresJson::array())},
                {"text_offset", std::exchange(offsets_, ScoresJson::array())}};
    }
    bool empty() const override { return tokens_.empty(); }

private:
    const Tokenizer& tokenizer_;
    std::size_t offset_ = 0;
    ScoresJson tokens_ = ScoresJson::array();
    ScoresJson log_probs_ = ScoresJson::array();
    ScoresJson top_ = ScoresJson::array();
    ScoresJson offsets_ = ScoresJson::array();
};

}  // namespace

std::string token_label(const Tokenizer& tokenizer, TokenId token) {
    const std::string_view bytes = tokenizer.bytes_of(token);
    if (utf8::valid_prefix(bytes) == bytes.size()) return std::string{bytes};
    std::string label = "bytes:";
    for (const char c : bytes) label += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    return label;
}

std::unique_ptr<ChoiceScores> chat_choice_scores(const Tokenizer& tokenizer) {
    return std::make_unique<ChatScores>(tokenizer);
}

std::unique_ptr<ChoiceScores> completion_choice_scores(const Tokenizer& tokenizer) {
    return std::make_unique<CompletionScores>(tokenizer);
}

}  // namespace paceline::serve
