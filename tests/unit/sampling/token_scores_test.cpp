// Log probabilities against a plain computation in double.
#include "model/sampling/token_scores.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "model/sampling/sampler_scratch.hpp"
#include "tests/unit/sampling/synthetic_rows.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// As the header says it: NaN is -inf, +inf the largest finite number.
std::vector<double> finite(const std::vector<float>& row) {
    std::vector<double> values;
    for (const float logit : row) {
        const float kept = std::isnan(logit) ? -kInfinity : logit;
        values.push_back(std::min(kept, std::numeric_limits<float>::max()));
    }
    return values;
}

struct Reference {
    explicit Reference(const std::vector<float>& row) : logits{finite(row)} {
        for (std::size_t i = 0; i < logits.size(); ++i) order.push_back(static_cast<TokenId>(i));
        std::stable_sort(order.begin(), order.end(),
                         [&](TokenId a, TokenId b) { return at(a) > at(b); });
        for (const double logit : logits) total += std::exp(logit - at(order.front()));
    }
    [[nodiscard]] double at(TokenId token) const { return logits[static_cast<std::size_t>(token)]; }
    [[nodiscard]] double log_prob(TokenId token) const {
        return at(token) - at(order.front()) - std::log(total);
    }
    std::vector<double> logits;
    std::vector<TokenId> order;
    double total = 0;
};

void check_near(float got, double expected) {
    if (std::isinf(expected)) {
        CHECK(got == -kInfinity);
    } else if (expected < -1e30) {
        CHECK(got < -1e30F);  // a difference of huge logits, rounded, or too large for a float
    } else {
        CHECK(std::abs(static_cast<double>(got) - expected) <= 1e-4 * (1 + std::abs(expected)));
    }
}

}  // namespace

TEST_CASE("the scores of any token of any row are those of a plain computation") {
    std::mt19937 random{5};
    SamplerScratch scratch;
    for (const RowKind kind : kRowKinds) {
        if (kind == RowKind::Hopeless) continue;  // no token has a probability
        for (const std::size_t vocab : {1U, 7U, 500U, 3000U}) {
            CAPTURE(static_cast<int>(kind));
            CAPTURE(vocab);
            const std::vector<float> row = make_row(kind, vocab, random);
            const Reference reference{row};
            if (std::isinf(reference.at(reference.order.front()))) continue;
            RowScores scores;
            scores.read(row, kTopScoresMax, scratch);
            for (int i = 0; i < 20; ++i) {
                const auto token = static_cast<TokenId>(random() % vocab);
                const TokenScores of = scores.of(token);
                check_near(of.log_prob, reference.log_prob(token));
                CHECK(reference.order[static_cast<std::size_t>(of.rank)] == token);
            }
            const std::vector<ScoredToken> top = scores.of(0).top;
            for (std::size_t i = 0; i < top.size(); ++i) {
                CHECK(top[i].token == reference.order[i]);
                check_near(top[i].log_prob, reference.log_prob(top[i].token));
                CHECK(scores.of(top[i].token).log_prob == top[i].log_prob);
            }
            const auto possible = std::count_if(reference.logits.begin(), reference.logits.end(),
                                                [](double logit) { return std::isfinite(logit); });
            CHECK(top.size() ==
                  static_cast<std::size_t>(std::min<std::ptrdiff_t>(possible, kTopScoresMax)));
        }
    }
}

TEST_CASE("without neighbours only the token itself is scored, with the same bits") {
    std::mt19937 random{6};
    SamplerScratch scratch;
    const std::vector<float> row = make_row(RowKind::Peaked, 1000, random);
    RowScores alone;
    RowScores with;
    alone.read(row, 0, scratch);
    with.read(row, 5, scratch);
    for (TokenId token = 0; token < 1000; token += 37) {
        CHECK(alone.of(token).top.empty());
        CHECK(alone.of(token).log_prob == with.of(token).log_prob);
        CHECK(alone.of(token).rank == with.of(token).rank);
    }
}
