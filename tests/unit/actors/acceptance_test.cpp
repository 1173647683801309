#include "actors/decoding/acceptance.hpp"

#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "ipc/base/limits.hpp"
#include "model/sampling/sampler_scratch.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr int kVocab = 8;

/// A wave, and the token that the target prefers at each of its rows.
struct Scene {
    std::vector<msg::WaveRow> rows;
    std::vector<TokenId> wants;
    std::vector<std::size_t> asked;  // rows whose logits were asked for, in order
    std::vector<float> logits = std::vector<float>(kVocab);
    SamplingParams sampling;
    FinishRule rule{.end_tokens = {}, .max_tokens = -1, .answer_begin = 1, .context = 1000};
    std::vector<TokenId> committed{4};

    void row(
        std::uint32_t node, std::uint32_t parent, TokenId token, Position position, TokenId want) {
        rows.push_back({NodeId{node}, parent, token, position, 0});
        wants.push_back(want);
    }
    Judged judge() {
        SamplerScratch scratch;
        const auto logits_of = [&](std::size_t row) {
            asked.push_back(row);
            std::fill(logits.begin(), logits.end(), 0.0F);
            logits[static_cast<std::size_t>(wants[row])] = 5.0F;
            return std::span{logits};
        };
        return judge_coupled(
            {.rows = rows, .root = 0, .committed = committed, .sampling = sampling, .finish = rule},
            logits_of, scratch);
    }
};

/// r(4) - a(1) - b(2) - c(3)        and, below a, the alternative x(5) - y(6)
Scene tree() {
    Scene scene;
    scene.row(10, msg::kNoParent, 4, 0, 1);
    scene.row(11, 10, 1, 1, 5);
    scene.row(12, 11, 2, 2, 3);
    scene.row(13, 12, 3, 3, 0);
    scene.row(14, 11, 5, 2, 6);
    scene.row(15, 14, 6, 3, 7);
    return scene;
}

}  // namespace

TEST_CASE("the walk follows a sibling where the target says so, and samples only its own path") {
    Scene scene = tree();
    const Judged judged = scene.judge();
    CHECK(judged.tokens == std::vector<TokenId>{1, 5, 6, 7});
    CHECK(judged.nodes == std::vector<NodeId>{NodeId{11}, NodeId{14}, NodeId{15}});
    CHECK(judged.finish == msg::Finish::No);
    CHECK(scene.asked == std::vector<std::size_t>{0, 1, 4, 5});
    CHECK(judged.rows_sampled == 4);
}

TEST_CASE("a miss at the root commits the target's own token alone") {
    Scene scene = tree();
    scene.wants[0] = 7;
    const Judged judged = scene.judge();
    CHECK(judged.tokens == std::vector<TokenId>{7});
    CHECK(judged.nodes.empty());
    CHECK(scene.asked == std::vector<std::size_t>{0});
}

TEST_CASE("nothing is committed after an end token, even if the wave holds its children") {
    Scene scene = tree();
    scene.rule.end_tokens = {5};
    const Judged judged = scene.judge();
    CHECK(judged.tokens == std::vector<TokenId>{1, 5});
    CHECK(judged.nodes == std::vector<NodeId>{NodeId{11}});
    CHECK(judged.finish == msg::Finish::EndToken);
}

TEST_CASE("an end token as the first token ends the answer there") {
    Scene scene = tree();
    scene.rule.end_tokens = {1};
    CHECK(scene.judge().tokens == std::vector<TokenId>{1});
}

TEST_CASE("the token count and the context end the walk at the exact token") {
    Scene counted = tree();
    counted.rule.max_tokens = 3;
    CHECK(counted.judge().tokens == std::vector<TokenId>{1, 5, 6});
    CHECK(counted.judge().finish == msg::Finish::MaxTokens);
    Scene full = tree();
    full.rule.context = 3;  // positions 0, 1, 2
    CHECK(full.judge().tokens == std::vector<TokenId>{1, 5});
    CHECK(full.judge().finish == msg::Finish::ContextFull);
}

TEST_CASE("penalties see the prompt, the committed tokens and the path") {
    Scene scene = tree();
    scene.sampling.presence_penalty = 6.0F;  // more than what the preferred token is ahead by
    scene.wants = {1, 1, 0, 0, 0, 0};
    // At the root 1 is new; at a it was just accepted on the path, so the lowest other id wins.
    CHECK(scene.judge().tokens == std::vector<TokenId>{1, 0});
}

TEST_CASE("a verdict never holds more than a message can carry") {
    Scene scene;
    scene.rule.context = 1000;
    scene.row(0, msg::kNoParent, 4, 0, 1);
    for (std::uint32_t i = 1; i < kWaveRowsMax; ++i) {
        scene.row(i, i - 1, 1, static_cast<Position>(i), 1);
    }
    const Judged judged = scene.judge();
    CHECK(judged.tokens.size() == kGammaMax + 1);
    CHECK(judged.nodes.size() == kGammaMax);
}
