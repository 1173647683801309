// top-k, top-p and min-p on rows small enough to check by hand.
#include <cmath>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "model/sampling/sampling.hpp"
#include "tests/unit/sampling/reference_sampler.hpp"

using namespace paceline;

namespace {

/// All tokens that are drawn at least once over many positions: the kept set.
std::set<TokenId> drawable(const std::vector<float>& logits, SamplingParams params) {
    SamplerScratch scratch;
    std::set<TokenId> tokens;
    for (Position p = 0; p < 4000; ++p) {
        std::vector<float> row = logits;
        tokens.insert(*sample(row, p, {}, params, scratch));
    }
    return tokens;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
    std::vector<float> logits;
    for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
    return logits;
}

using Set = std::set<TokenId>;

}  // namespace

TEST_CASE("top-k keeps the k largest, the lowest ids among equals") {
    const std::vector<float> logits{1.0f, 2.0f, 1.0f, 1.0f, 0.5f};
    CHECK(drawable(logits, {.temperature = 1.0f, .top_k = 1}) == Set{1});
    CHECK(drawable(logits, {.temperature = 1.0f, .top_k = 2}) == Set{0, 1});
    CHECK(drawable(logits, {.temperature = 1.0f, .top_k = 3}) == Set{0, 1, 2});
    CHECK(drawable(logits, {.temperature = 1.0f, .top_k = 9}) == Set{0, 1, 2, 3, 4});
}

TEST_CASE("top-p keeps the fewest tokens that reach p, the one that reaches it included") {
    const std::vector<float> logits = logs({0.1, 0.5, 0.15, 0.25});
    CHECK(drawable(logits, {.temperature = 1.0f, .top_p = 0.45f}) == Set{1});
    CHECK(drawable(logits, {.temperature = 1.0f, .top_p = 0.55f}) == Set{1, 3});
    CHECK(drawable(logits, {.temperature = 1.0f, .top_p = 0.8f}) == Set{1, 2, 3});
    CHECK(drawable(logits, {.temperature = 1.0f, .top_p = 0.95f}) == Set{0, 1, 2, 3});
    CHECK(drawable(logits, {.temperature = 1.0f, .top_p = 1e-6f}) == Set{1});
}

TEST_CASE("top-p takes the lowest ids among equals") {
    const std::vector<float> logits(10, 0.0f);
    CHECK(drawable(logits, {.temperature = 1.0f, .top_p = 0.25f}) == Set{0, 1, 2});
}

TEST_CASE("top-p counts what top-k left as the whole") {
    const std::vector<float> logits = logs({0.4, 0.3, 0.2, 0.1});
    // Of the first two, the first one has 4/7 = 0.57; of all, it has 0.4.
    CHECK(drawable(logits, {.temperature = 1.0f, .top_k = 2, .top_p = 0.5f}) == Set{0});
    CHECK(drawable(logits, {.temperature = 1.0f, .top_p = 0.5f}) == Set{0, 1});
}

TEST_CASE("min-p keeps what reaches a part of the largest probability") {
    const std::vector<float> logits = logs({0.5, 0.3, 0.15, 0.05});
    CHECK(drawable(logits, {.temperature = 1.0f, .min_p = 0.55f}) == Set{0, 1});
    CHECK(drawable(logits, {.temperature = 1.0f, .min_p = 0.25f}) == Set{0, 1, 2});
    CHECK(drawable(logits, {.temperature = 1.0f, .min_p = 0.99f}) == Set{0});
}

TEST_CASE("temperature comes before top-p and min-p") {
    const std::vector<float> logits = logs({0.5, 0.3, 0.15, 0.05});
    // At temperature 1/2 the probabilities are squared: 0.685, 0.247, 0.062, 0.007.
    CHECK(drawable(logits, {.temperature = 0.5f, .top_p = 0.65f}) == Set{0});
    CHECK(drawable(logits, {.temperature = 1.0f, .top_p = 0.65f}) == Set{0, 1});
    CHECK(drawable(logits, {.temperature = 0.5f, .min_p = 0.5f}) == Set{0});
    CHECK(drawable(logits, {.temperature = 1.0f, .min_p = 0.5f}) == Set{0, 1});
}

TEST_CASE("the reference keeps in order of rank") {
    const std::vector<float> logits{1.0f, 3.0f, 1.0f, 2.0f};
    CHECK(reference_kept(logits, {.temperature = 1.0f, .top_k = 3}) ==
          std::vector<TokenId>{1, 3, 0});
}
