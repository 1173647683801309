// sample() against its reference implementation, on random rows of every unpleasant kind.
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "model/sampling/sampling.hpp"
#include "tests/unit/sampling/reference_sampler.hpp"
#include "tests/unit/sampling/synthetic_rows.hpp"

using namespace paceline;
using namespace paceline::testing;

TEST_CASE("sample draws what the reference implementation draws, on every kind of row") {
    std::mt19937 random(20);
    std::vector<SamplerScratch> samplers;
    for (const RowIsa isa : {RowIsa::Baseline, RowIsa::Avx2, RowIsa::Avx512}) {
        if (const RowKernels* kernels = row_kernels_for(isa)) samplers.emplace_back(*kernels);
    }
    int drawn = 0;
    for (const std::size_t vocab : {1, 2, 5, 16, 250, 256, 700, 3000}) {
        for (int round = 0; round < 40; ++round) {
            for (const RowKind kind : kRowKinds) {
                const std::vector<float> row = make_row(kind, vocab, random);
                SamplingParams params = random_params(random);
                std::vector<TokenId> text;
                for (int i = 0; i < 12; ++i) text.push_back(static_cast<TokenId>(random() % vocab));
                if (random() % 4 == 0) {
                    params.logit_bias = {{static_cast<TokenId>(random() % vocab), 5.0f}};
                }
                REQUIRE(validate(params, static_cast<int>(vocab)).ok());
                const std::size_t split = random() % (text.size() + 1);
                const SeenTokens seen{std::span(text).first(split), std::span(text).subspan(split)};
                const auto position = static_cast<Position>(random() % 100000);

                const auto expected = reference_sample(row, position, seen, params);
                CHECK((kind == RowKind::Hopeless) <= !expected.has_value());
                for (SamplerScratch& sampler : samplers) {
                    CAPTURE(sampler.kernels->name);
                    CAPTURE(vocab);
                    CAPTURE(static_cast<int>(kind));
                    std::vector<float> copy = row;
                    CHECK(sample(copy, position, seen, params, sampler) == expected);
                    if (expected) ++drawn;
                }
            }
        }
    }
    CHECK(drawn > 1500);
}

TEST_CASE("sample draws what the reference implementation draws with a whole vocabulary") {
    std::mt19937 random(21);
    SamplerScratch sampler;
    for (int round = 0; round < 6; ++round) {
        for (const RowKind kind : {RowKind::Peaked, RowKind::Flat, RowKind::Coarse}) {
            std::vector<float> row = make_row(kind, 49152, random);
            SamplingParams params = random_params(random);
            if (params.greedy()) params.temperature = 1.0f;
            const auto expected = reference_sample(row, round, {}, params);
            CHECK(sample(row, round, {}, params, sampler) == expected);
        }
    }
}

TEST_CASE("greedy takes the lowest id among the largest logits") {
    SamplerScratch scratch;
    for (const std::size_t vocab : {3, 16, 257, 5000}) {
        for (std::size_t second = 1; second < vocab; second += 1 + vocab / 97) {
            std::vector<float> row(vocab, 1.0f);
            row[second] = 2.0f;
            row[vocab - 1] = 2.0f;
            CHECK(argmax(row, scratch) == static_cast<TokenId>(second));
            row[second - 1] = kNan;
            CHECK(sample(row, 0, {}, {}, scratch) == static_cast<TokenId>(second));
        }
    }
    std::vector<float> zeros{-0.0f, 0.0f, -1.0f};
    CHECK(argmax(zeros, scratch) == 0);
    std::vector<float> infinite{1.0f, kInfinity, kNan, kInfinity};
    CHECK(argmax(infinite, scratch) == 1);
}

TEST_CASE("a row without a number has no token") {
    SamplerScratch scratch;
    for (const float temperature : {0.0f, 1.0f}) {
        SamplingParams params;
        params.temperature = temperature;
        params.top_p = 0.9f;
        std::vector<float> nothing{kNan, -kInfinity, kNan};
        CHECK_FALSE(sample(nothing, 0, {}, params, scratch).has_value());
        nothing[2] = -3e38f;
        CHECK(sample(nothing, 0, {}, params, scratch) == 2);
    }
}

TEST_CASE("a draw does not depend on the draws before it, nor on other rows' scratch") {
    std::mt19937 random(22);
    SamplingParams params;
    params.temperature = 0.9f;
    params.top_p = 0.97f;
    params.repetition_penalty = 1.1f;
    const std::vector<TokenId> text{3, 4, 4, 9};
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < 40; ++i) rows.push_back(make_row(RowKind::Peaked, 600, random));
    std::vector<std::optional<TokenId>> forwards;
    SamplerScratch one;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        std::vector<float> row = rows[i];
        forwards.push_back(sample(row, static_cast<Position>(i), {text, {}}, params, one));
    }
    SamplerScratch other;
    std::vector<float> big = make_row(RowKind::Peaked, 9000, random);
    (void)sample(big, 77, {}, params, other);
    for (std::size_t i = rows.size(); i-- > 0;) {
        std::vector<float> row = rows[i];
        const SeenTokens split{std::span(text).first(1), std::span(text).subspan(1)};
        CHECK(sample(row, static_cast<Position>(i), split, params, other) == forwards[i]);
    }
}

TEST_CASE("another seed or another position draws another token, most of the time") {
    SamplingParams params;
    params.temperature = 1.0f;
    SamplerScratch scratch;
    std::vector<float> row(1000, 0.0f);
    int same_seed = 0;
    int same_position = 0;
    for (std::uint64_t i = 0; i < 2000; ++i) {
        params.seed = i;
        const auto here = sample(row, 5, {}, params, scratch);
        same_position += sample(row, 6, {}, params, scratch) == here ? 1 : 0;
        params.seed = i + (std::uint64_t{1} << 40);  // the upper half of the seed counts too
        same_seed += sample(row, 5, {}, params, scratch) == here ? 1 : 0;
    }
    CHECK(same_seed < 12);  // 2 are expected of 2000
    CHECK(same_position < 12);
}
