#include "model/sampling/candidates.hpp"

#include <algorithm>
#include <limits>

#include "model/sampling/fixed_math.hpp"
#include "model/sampling/penalties.hpp"
#include "model/sampling/race.hpp"

namespace paceline {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMarginMax = 100.0f;  // wider is the whole row

/// A token's rank in a race: higher score first, lower id among equals.
bool ahead(const Candidate& a, const Candidate& b) {
    return a.log_prob > b.log_prob || (a.log_prob == b.log_prob && a.token < b.token);
}

/// The best few of what it is shown, in order. Until finish(), log_prob is the score.
class Best {
public:
    explicit Best(int count) : count_{static_cast<std::size_t>(count)} { list_.reserve(count_); }

    /// A score below this is not among the best.
    [[nodiscard]] float floor() const {
        return list_.size() < count_ ? -kInfinity : list_.back().log_prob;
    }
    void show(TokenId token, float score) {
        const Candidate candidate{token, score};
        if (list_.size() == count_) {
            if (!ahead(candidate, list_.back())) return;
            list_.pop_back();
        }
        list_.insert(std::upper_bound(list_.begin(), list_.end(), candidate, ahead), candidate);
    }
    [[nodiscard]] std::vector<Candidate>& list() { return list_; }

private:
    std::size_t count_;
    std::vector<Candidate> list_;
};

std::vector<Candidate> greedy_candidates(std::span<float> logits,
                                         int count,
                                         SamplerScratch& scratch) {
    LikeliestTokens likeliest = likeliest_tokens(logits, count, scratch);
    return std::move(likeliest.tokens);
}

}  // namespace

float log_prob_of(float logit, const LikeliestTokens& row) {
    if (!(logit > -kInfinity)) return -kInfinity;
    const float behind = std::min(logit, row.largest) - row.largest;
    return std::min(behind - row.log_total, 0.0f);
}

LikeliestTokens likeliest_tokens(std::span<float> logits, int count, SamplerScratch& scratch) {
    scratch.fit(static_cast<int>(logits.size()));
    const int vocab = static_cast<int>(logits.size());
    LikeliestTokens row{.largest =
                            scratch.kernels->fold(logits.data(), vocab, scratch.group_max.data())};
    if (row.largest == -kInfinity) return row;
    Best best{count};
    const int groups = groups_of(vocab);
    for (int group = 0; group < groups; ++group) {
        const float largest = scratch.group_max[static_cast<std::size_t>(group)];
        if (largest == -kInfinity || largest < best.floor()) continue;
        const int first = group / noise::kColumns * noise::kTileTokens + group % noise::kColumns;
        const int end = std::min(vocab, first + noise::kTileTokens);
        for (int token = first; token < end; token += noise::kColumns) {
            const float logit = logits[static_cast<std::size_t>(token)];
            if (logit > -kInfinity && logit >= best.floor()) best.show(token, logit);
        }
    }
    if (row.largest == kInfinity) {
        make_finite(logits);
        row.largest = std::numeric_limits<float>::max();
    }
    const double total = scratch.kernels->soften({.logits = logits.data(),
                                                  .vocab = vocab,
                                                  .group_max = nullptr,
                                                  .max_logit = row.largest,
                                                  .inverse_temperature = 1.0f,
                                                  .z_min = -kInfinity,
                                                  .logit_min = -kInfinity,
                                                  .last_id = vocab,
                                                  .seed = 0,
                                                  .position = 0,
                                                  .race = nullptr,
                                                  .bound = nullptr},
                                                 nullptr);
    row.log_total = fixed_log(static_cast<float>(total));
    row.tokens = std::move(best.list());
    for (Candidate& candidate : row.tokens)
        candidate.log_prob = log_prob_of(candidate.log_prob, row);
    return row;
}

std::vector<Candidate> candidates(std::span<float> logits,
                                  Position position,
                                  const SeenTokens& seen,
                                  const SamplingParams& params,
                                  int count,
                                  SamplerScratch& scratch) {
    PACE_CHECK(position >= 0, "a token has a position");
    PACE_CHECK(count >= 1, "a race has a winner");
    scratch.fit(static_cast<int>(logits.size()));
    apply_bias_and_penalties(logits, seen, params, scratch);
    if (params.greedy()) return greedy_candidates(logits, count, scratch);

    const std::optional<DrawArgs> race = prepare_race(logits, position, params, scratch);
    if (!race) return {};
    const float top = scratch.kernels->draw(*race).score;
    if (scratch.scores.size() < logits.size()) scratch.scores.resize(logits.size());
    float total = 0.0f;
    // Mostly the first margin holds enough of them; a widening one finds the far ones of a row
    // that leaves few, and ends at the whole row.
    for (float margin = kRivalMargin;; margin *= 1.5f) {
        const bool all = margin > kMarginMax;
        const float low = all ? std::numeric_limits<float>::lowest() : top - margin;
        const int rivals =
            scratch.kernels->rivals(*race, low, scratch.collected.data(), scratch.scores.data());
        Best best{count};
        for (int i = 0; i < rivals; ++i) {
            const auto at = static_cast<std::size_t>(i);
            if (margin == kRivalMargin) total += fixed_exp(scratch.scores[at] - top);
            best.show(scratch.collected[at], scratch.scores[at]);
        }
        if (!all && best.list().size() < static_cast<std::size_t>(count)) continue;
        const float log_total = fixed_log(total);
        for (Candidate& candidate : best.list())
            candidate.log_prob = std::min(candidate.log_prob - top - log_total, 0.0f);
        return std::move(best.list());
    }
}

std::vector<Candidate> listed_candidates(std::span<float> logits,
                                         std::span<const TokenId> tokens,
                                         std::span<float> row,
                                         Position position,
                                         const SeenTokens& seen,
                                         const SamplingParams& params,
                                         int count,
                                         SamplerScratch& scratch) {
    PACE_CHECK(logits.size() == tokens.size(), "a logit for each token of the list");
    if (params.greedy() && !params.has_penalties() && params.logit_bias.empty()) {
        scratch.fit(static_cast<int>(logits.size()));
        std::vector<Candidate> best = greedy_candidates(logits, count, scratch);
        for (Candidate& candidate : best)
            candidate.token = tokens[static_cast<std::size_t>(candidate.token)];
        return best;
    }
    std::fill(row.begin(), row.end(), -kInfinity);
    for (std::size_t i = 0; i < tokens.size(); ++i)
        row[static_cast<std::size_t>(tokens[i])] = logits[i];
    return candidates(row, position, seen, params, count, scratch);
}

bool probabilities(std::span<float> logits,
                   const SeenTokens& seen,
                   const SamplingParams& params,
                   std::span<float> probabilities,
                   SamplerScratch& scratch,
                   const TokenMask* mask) {
    PACE_CHECK(probabilities.size() == logits.size(), "one probability per token");
    scratch.fit(static_cast<int>(logits.size()));
    apply_bias_and_penalties(logits, seen, params, scratch);
    if (mask != nullptr) mask->apply(logits);
    if (params.greedy()) {
        std::fill(probabilities.begin(), probabilities.end(), 0.0f);
        const std::optional<TokenId> token = argmax(logits, scratch);
        if (token) probabilities[static_cast<std::size_t>(*token)] = 1.0f;
        return token.has_value();
    }
    const std::optional<DrawArgs> race = prepare_race(logits, 0, params, scratch);
    if (!race) return false;
    const double inverse = 1.0 / scratch.kernels->soften(*race, probabilities.data());
    for (float& p : probabilities) p = static_cast<float>(static_cast<double>(p) * inverse);
    return true;
}

std::vector<TokenProbability> most_probable(std::span<float> logits,
                                            const SeenTokens& seen,
                                            const SamplingParams& params,
                                            int count,
                                            SamplerScratch& scratch) {
    PACE_CHECK(count >= 1, "the most probable of no tokens");
    if (scratch.scores.size() < logits.size()) scratch.scores.resize(logits.size());
    const std::span<float> all = std::span{scratch.scores}.first(logits.size());
    if (!probabilities(logits, seen, params, all, scratch)) return {};
    Best best{count};
    for (std::size_t token = 0; token < all.size(); ++token) {
        if (all[token] > 0.0f && all[token] > best.floor()) {
            best.show(static_cast<TokenId>(token), all[token]);
        }
    }
    std::vector<TokenProbability> found;
    for (const Candidate& one : best.list()) found.push_back({one.token, one.log_prob});
    return found;
}

}  // namespace paceline
