// Penalties and bias: the arithmetic of the field, the window, the order.
#include "model/sampling/penalties.hpp"

#include <limits>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;

namespace {

std::vector<float> penalised(std::vector<float> logits,
                             const std::vector<TokenId>& committed,
                             const std::vector<TokenId>& path,
                             const SamplingParams& params) {
    SamplerScratch scratch;
    scratch.fit(static_cast<int>(logits.size()));
    apply_bias_and_penalties(logits, {committed, path}, params, scratch);
    for (const std::uint32_t count : scratch.counts) CHECK(count == 0);
    return logits;
}

using Row = std::vector<float>;

}  // namespace

TEST_CASE("the repetition penalty divides positive and multiplies negative logits, once") {
    CHECK(penalised({4.0f, -4.0f, 4.0f, 0.0f}, {0, 0, 1, 3}, {}, {.repetition_penalty = 2.0f}) ==
          Row{2.0f, -8.0f, 4.0f, 0.0f});
}

TEST_CASE("presence is subtracted once, frequency per occurrence in text and path together") {
    CHECK(penalised({1.0f, 1.0f, 1.0f}, {0, 1, 0}, {0}, {.presence_penalty = 0.5f}) ==
          Row{0.5f, 0.5f, 1.0f});
    CHECK(penalised({1.0f, 1.0f, 1.0f}, {0, 1, 0}, {0}, {.frequency_penalty = 0.5f}) ==
          Row{-0.5f, 0.5f, 1.0f});
    CHECK(penalised({1.0f, 1.0f}, {0, 0}, {},
                    {.presence_penalty = -1.0f, .frequency_penalty = -1.0f}) == Row{4.0f, 1.0f});
}

TEST_CASE("the penalties apply in the documented order") {
    // 3 + 1 (bias), / 2 (repetition), - (2 * 0.25 + 0.5)
    const SamplingParams params{.repetition_penalty = 2.0f,
                                .presence_penalty = 0.5f,
                                .frequency_penalty = 0.25f,
                                .logit_bias = {{1, 1.0f}}};
    CHECK(penalised({0.0f, 3.0f}, {1}, {1}, params) == Row{0.0f, 1.0f});
}

TEST_CASE("the window counts from the end of the path back into the text") {
    const Row ones(5, 1.0f);
    const std::vector<TokenId> text{0, 1, 2};
    const std::vector<TokenId> path{3, 4};
    const auto with_window = [&](int window) {
        return penalised(ones, text, path, {.presence_penalty = 1.0f, .penalty_window = window});
    };
    CHECK(with_window(0) == Row{1, 1, 1, 1, 1});
    CHECK(with_window(1) == Row{1, 1, 1, 1, 0});
    CHECK(with_window(2) == Row{1, 1, 1, 0, 0});
    CHECK(with_window(3) == Row{1, 1, 0, 0, 0});
    CHECK(with_window(5) == Row{0, 0, 0, 0, 0});
    CHECK(with_window(99) == Row{0, 0, 0, 0, 0});
    CHECK(with_window(-1) == Row{0, 0, 0, 0, 0});
}

TEST_CASE("tokens before the position where penalties begin do not count, whatever the window") {
    const Row ones(5, 1.0f);
    const std::vector<TokenId> text{0, 1, 2};
    const std::vector<TokenId> path{3, 4};
    const auto from = [&](Position begin, int window) {
        return penalised(
            ones, text, path,
            {.presence_penalty = 1.0f, .penalty_window = window, .penalty_begin = begin});
    };
    CHECK(from(2, -1) == Row{1, 1, 0, 0, 0});
    CHECK(from(3, 64) == Row{1, 1, 1, 0, 0});
    CHECK(from(3, 1) == Row{1, 1, 1, 1, 0});
    CHECK(from(4, -1) == Row{1, 1, 1, 1, 0});
    CHECK(from(5, -1) == Row{1, 1, 1, 1, 1});
    CHECK(from(9, 64) == Row{1, 1, 1, 1, 1});
}

TEST_CASE("a bias of minus infinity bans a token, under greedy and under sampling") {
    const float ban = -std::numeric_limits<float>::infinity();
    SamplerScratch scratch;
    for (const float temperature : {0.0f, 1.0f}) {
        const SamplingParams params{.temperature = temperature, .logit_bias = {{0, ban}, {2, ban}}};
        for (Position p = 0; p < 200; ++p) {
            std::vector<float> row{9.0f, 1.0f, 9.0f, 1.5f};
            const TokenId token = *sample(row, p, {}, params, scratch);
            CHECK((token == 1 || token == 3));
        }
    }
}

TEST_CASE("penalties change what greedy takes") {
    SamplerScratch scratch;
    const std::vector<TokenId> path{1};
    std::vector<float> row{2.0f, 3.0f};
    CHECK(sample(row, 1, {{}, path}, {.repetition_penalty = 2.0f}, scratch) == 0);
}
