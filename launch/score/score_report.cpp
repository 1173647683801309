#include "launch/score/score_report.hpp"

#include <cmath>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "launch/base/json_text.hpp"

namespace paceline {
namespace {

std::string quoted(const Tokenizer& tokenizer, TokenId token) {
    return json_text(nlohmann::json(tokenizer.bytes_of(token)));
}

/// JSON has no infinity: a token that the model excludes has null.
nlohmann::json number(float log_prob) {
    return std::isfinite(log_prob) ? nlohmann::json(log_prob) : nlohmann::json();
}

}  // namespace

double ScoreSum::perplexity() const {
    return tokens == 0 ? 1.0 : std::exp(-log_prob / static_cast<double>(tokens));
}

ScoreSum sum_of(std::span<const TokenScores> scores) {
    ScoreSum sum;
    for (const TokenScores& each : scores) {
        if (!each.scored()) continue;
        ++sum.tokens;
        sum.log_prob += static_cast<double>(each.log_prob);
    }
    return sum;
}

std::string score_table(const Tokenizer& tokenizer,
                        std::size_t first,
                        std::span<const TokenId> ids,
                        std::span<const TokenScores> scores) {
    std::string table = fmt::format("{:>8} {:>8} {:>12} {:>6}  {}\n", "position", "id", "log prob",
                                    "rank", "token");
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const TokenScores& each = scores[i];
        std::string values = fmt::format("{:>12} {:>6}", "-", "-");
        if (each.scored()) values = fmt::format("{:>12.6f} {:>6}", each.log_prob, each.rank);
        table +=
            fmt::format("{:>8} {:>8} {}  {}", first + i, ids[i], values, quoted(tokenizer, ids[i]));
        for (std::size_t t = 0; t < each.top.size(); ++t) {
            table += fmt::format("{}{} {:.6f}", t == 0 ? "  | " : ", ",
                                 quoted(tokenizer, each.top[t].token), each.top[t].log_prob);
        }
        table += '\n';
    }
    return table;
}

nlohmann::json score_json(const Tokenizer& tokenizer,
                          std::span<const TokenId> ids,
                          std::span<const TokenScores> scores) {
    nlohmann::json tokens = nlohmann::json::array();
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const TokenScores& each = scores[i];
        nlohmann::json token{{"id", ids[i]},
                             {"token", std::string{tokenizer.bytes_of(ids[i])}},
                             {"logprob", each.scored() ? number(each.log_prob) : nlohmann::json()},
                             {"rank", each.scored() ? nlohmann::json(each.rank) : nlohmann::json()},
                             {"top", nlohmann::json::array()}};
        for (const ScoredToken& other : each.top) {
            token["top"].push_back({{"id", other.token},
                                    {"token", std::string{tokenizer.bytes_of(other.token)}},
                                    {"logprob", number(other.log_prob)}});
        }
        tokens.push_back(std::move(token));
    }
    return tokens;
}

}  // namespace paceline
