// candidates() and probabilities() against their reference implementations, and against sample().
#include "model/sampling/candidates.hpp"

#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/sampling/reference_sampler.hpp"
#include "tests/unit/sampling/synthetic_rows.hpp"

using namespace paceline;
using namespace paceline::testing;

namespace {

std::vector<SamplerScratch> all_samplers() {
    std::vector<SamplerScratch> samplers;
    for (const RowIsa isa : {RowIsa::Baseline, RowIsa::Avx2, RowIsa::Avx512}) {
        if (const RowKernels* kernels = row_kernels_for(isa)) samplers.emplace_back(*kernels);
    }
    return samplers;
}

/// A row, its parameters and the text before it, at random.
struct Draw {
    std::vector<float> row;
    SamplingParams params;
    std::vector<TokenId> text;
    Position position = 0;

    Draw(RowKind kind, std::size_t vocab, std::mt19937& random)
        : row{make_row(kind, vocab, random)}, params{random_params(random)} {
        for (int i = 0; i < 12; ++i) text.push_back(static_cast<TokenId>(random() % vocab));
        if (random() % 4 == 0)
            params.logit_bias = {{static_cast<TokenId>(random() % vocab), -kInfinity}};
        position = static_cast<Position>(random() % 100000);
    }
    [[nodiscard]] SeenTokens seen() const {
        return {std::span(text).first(5), std::span(text).subspan(5)};
    }
};

void check_equal(const std::vector<Candidate>& got, const std::vector<Candidate>& want) {
    REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].token == want[i].token);
        CHECK(got[i].log_prob <= 0.0f);
        if (std::isinf(want[i].log_prob)) {
            CHECK(got[i].log_prob == want[i].log_prob);
        } else {
            const float size = 1.0f + std::fabs(want[i].log_prob);
            CHECK(std::fabs(got[i].log_prob - want[i].log_prob) < 1e-4f * size);
        }
    }
}

}  // namespace

TEST_CASE(
    "candidates are the best of the reference implementation's race, the first is what sample "
    "draws") {
    std::mt19937 random(70);
    std::vector<SamplerScratch> samplers = all_samplers();
    std::size_t seconds = 0;
    for (const std::size_t vocab : {1, 2, 5, 16, 250, 256, 700, 3000}) {
        for (int round = 0; round < 30; ++round) {
            for (const RowKind kind : kRowKinds) {
                const Draw d(kind, vocab, random);
                const int count = 1 << random() % 6;
                const std::vector<Candidate> want =
                    reference_candidates(d.row, d.position, d.seen(), d.params, count);
                const auto drawn = reference_sample(d.row, d.position, d.seen(), d.params);
                REQUIRE(drawn.has_value() == !want.empty());
                if (drawn) CHECK(want.front().token == *drawn);
                seconds += want.size() > 1 ? 1 : 0;
                for (SamplerScratch& sampler : samplers) {
                    CAPTURE(sampler.kernels->name);
                    CAPTURE(vocab);
                    CAPTURE(static_cast<int>(kind));
                    std::vector<float> row = d.row;
                    check_equal(candidates(row, d.position, d.seen(), d.params, count, sampler),
                                want);
                }
            }
        }
    }
    CHECK(seconds > 500);
}

TEST_CASE(
    "candidates of a whole vocabulary are those of the reference implementation on every "
    "instruction set") {
    std::mt19937 random(71);
    std::vector<SamplerScratch> samplers = all_samplers();
    for (int round = 0; round < 8; ++round) {
        for (const RowKind kind : {RowKind::Peaked, RowKind::Flat, RowKind::Coarse}) {
            Draw d(kind, 49152, random);
            if (round % 2 == 0) d.params.temperature = 0.0f;
            if (round == 0) d.row[4711] = 40.0f;  // far ahead: the others are beyond the margin
            const std::vector<Candidate> want =
                reference_candidates(d.row, d.position, d.seen(), d.params, 4);
            std::vector<float> bits;
            for (SamplerScratch& sampler : samplers) {
                std::vector<float> row = d.row;
                const std::vector<Candidate> got =
                    candidates(row, d.position, d.seen(), d.params, 4, sampler);
                check_equal(got, want);
                for (const Candidate& c : got) bits.push_back(c.log_prob);
            }
            for (std::size_t i = 0; i < bits.size(); ++i) CHECK(bits[i] == bits[i % want.size()]);
        }
    }
}

TEST_CASE("candidates of a short list are those of a row whose other tokens cannot be drawn") {
    std::mt19937 random(73);
    std::vector<SamplerScratch> samplers = all_samplers();
    std::size_t found = 0;
    for (const std::size_t vocab : {1, 20, 300, 3000}) {
        for (int round = 0; round < 30; ++round) {
            for (const RowKind kind : kRowKinds) {
                Draw d(kind, vocab, random);
                if (round % 3 == 0) d.params = {};
                std::vector<TokenId> tokens;
                std::vector<float> listed;
                std::vector<float> whole(vocab, -kInfinity);
                for (std::size_t t = 0; t < vocab; ++t) {
                    if (random() % 3 == 0) continue;
                    tokens.push_back(static_cast<TokenId>(t));
                    listed.push_back(d.row[t]);
                    whole[t] = d.row[t];
                }
                if (tokens.empty()) continue;
                const int count = 1 << random() % 4;
                const std::vector<Candidate> want =
                    reference_candidates(whole, d.position, d.seen(), d.params, count);
                found += want.size();
                for (SamplerScratch& sampler : samplers) {
                    std::vector<float> logits = listed;
                    std::vector<float> row(vocab);
                    check_equal(listed_candidates(logits, tokens, row, d.position, d.seen(),
                                                  d.params, count, sampler),
                                want);
                }
            }
        }
    }
    CHECK(found > 1000);
}

TEST_CASE("the log probability of a greedy candidate is that of the softmax") {
    SamplerScratch scratch;
    std::vector<float> row{1.0f, 3.0f, 2.0f, -kInfinity, kNan};
    const std::vector<Candidate> got = candidates(row, 0, {}, {}, 9, scratch);
    REQUIRE(got.size() == 3);
    const double total = std::exp(-2.0) + 1.0 + std::exp(-1.0);
    CHECK(got[0].token == 1);
    CHECK(static_cast<double>(got[0].log_prob) == doctest::Approx(-std::log(total)));
    CHECK(got[1].token == 2);
    CHECK(static_cast<double>(got[1].log_prob) == doctest::Approx(-1.0 - std::log(total)));
    CHECK(got[2].token == 0);
}

TEST_CASE("probabilities are those of the reference implementation and sum to one") {
    std::mt19937 random(72);
    std::vector<SamplerScratch> samplers = all_samplers();
    for (const std::size_t vocab : {1, 2, 16, 257, 3000}) {
        for (int round = 0; round < 25; ++round) {
            for (const RowKind kind : kRowKinds) {
                const Draw d(kind, vocab, random);
                const std::vector<double> want = reference_probabilities(d.row, d.seen(), d.params);
                for (SamplerScratch& sampler : samplers) {
                    std::vector<float> row = d.row;
                    std::vector<float> got(vocab, 7.0f);
                    REQUIRE(probabilities(row, d.seen(), d.params, got, sampler) == !want.empty());
                    double sum = 0.0;
                    double worst = 0.0;
                    for (std::size_t t = 0; t < want.size(); ++t) {
                        sum += static_cast<double>(got[t]);
                        worst = std::max(worst, std::fabs(static_cast<double>(got[t]) - want[t]) /
                                                    (want[t] + 1e-9));
                        if (want[t] == 0.0) CHECK(got[t] == 0.0f);
                    }
                    if (want.empty()) continue;
                    CHECK(std::fabs(sum - 1.0) < 1e-5);
                    CHECK(worst < 1e-4);
                }
            }
        }
    }
}

TEST_CASE("what sample draws is distributed as probabilities says, after every filter") {
    std::mt19937 random(73);
    const std::vector<float> logits = make_row(RowKind::Peaked, 40, random);
    SamplerScratch scratch;
    for (const SamplingParams& params :
         {SamplingParams{.temperature = 2.0f, .seed = 5},
          SamplingParams{.temperature = 3.0f, .top_k = 12, .top_p = 0.9f, .seed = 6},
          SamplingParams{.temperature = 4.0f, .min_p = 0.2f, .seed = 7}}) {
        std::vector<float> row = logits;
        std::vector<float> p(row.size());
        REQUIRE(probabilities(row, {}, params, p, scratch));
        constexpr int kDraws = 60000;
        std::vector<int> counts(row.size(), 0);
        for (Position at = 0; at < kDraws; ++at) {
            row = logits;
            ++counts[static_cast<std::size_t>(*sample(row, at, {}, params, scratch))];
        }
        for (std::size_t t = 0; t < p.size(); ++t) {
            const double expected = kDraws * static_cast<double>(p[t]);
            if (p[t] == 0.0f) CHECK(counts[t] == 0);
            // Five standard deviations: the seeds are fixed, so a pass stays a pass.
            CHECK(std::fabs(counts[t] - expected) < 5.0 * std::sqrt(expected) + 3.0);
        }
    }
}
