#include "actors/decoding/acceptance.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "ipc/base/limits.hpp"
#include "model/sampling/sampler_scratch.hpp"
#include "tests/support/toy/toy_grammar.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr int kVocab = 8;
constexpr TokenId kNothing = -1;  // wanted by a row whose logits are all NaN

/// A batch, and the token that the target prefers at each of its rows.
struct Scene {
    std::vector<msg::BatchRow> rows;
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
    WalkResult walk(AcceptanceRule acceptance = AcceptanceRule::Coupled) {
        SamplerScratch scratch;
        BatchWalk walk{{.rows = rows,
                        .committed = committed,
                        .sampling = sampling,
                        .finish = rule,
                        .rule = acceptance}};
        while (const auto row = walk.wanted()) {
            asked.push_back(*row);
            const float rest = wants[*row] == kNothing ? std::nanf("") : 0.0F;
            std::fill(logits.begin(), logits.end(), rest);
            if (wants[*row] != kNothing) logits[static_cast<std::size_t>(wants[*row])] = 5.0F;
            walk.feed(logits, scratch);
        }
        return walk.take();
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
    const WalkResult result = scene.walk();
    CHECK(result.tokens == std::vector<TokenId>{1, 5, 6, 7});
    CHECK(result.nodes == std::vector<NodeId>{NodeId{11}, NodeId{14}, NodeId{15}});
    CHECK(result.finish == FinishReason::None);
    CHECK(scene.asked == std::vector<std::size_t>{0, 1, 4, 5});
    CHECK(result.last_row == 5);
}

TEST_CASE("unverified candidates stand, and where there is none the target draws") {
    Scene scene = tree();
    const WalkResult result = scene.walk(AcceptanceRule::Unverified);
    CHECK(result.tokens == std::vector<TokenId>{1, 2, 3, 0});  // first children, then row c's own
    CHECK(result.nodes == std::vector<NodeId>{NodeId{11}, NodeId{12}, NodeId{13}});
    CHECK(result.last_row == 3);
    scene.rule.end_tokens = {2};
    CHECK(scene.walk(AcceptanceRule::Unverified).finish == FinishReason::EndToken);
}

TEST_CASE("a miss at the root commits the target's own token alone") {
    Scene scene = tree();
    scene.wants[0] = 7;
    const WalkResult result = scene.walk();
    CHECK(result.tokens == std::vector<TokenId>{7});
    CHECK(result.nodes.empty());
    CHECK(scene.asked == std::vector<std::size_t>{0});
}

TEST_CASE("nothing is committed after an end token, even if the batch holds its children") {
    Scene scene = tree();
    scene.rule.end_tokens = {5};
    const WalkResult result = scene.walk();
    CHECK(result.tokens == std::vector<TokenId>{1, 5});
    CHECK(result.nodes == std::vector<NodeId>{NodeId{11}});
    CHECK(result.finish == FinishReason::EndToken);
}

TEST_CASE("an end token as the first token ends the answer there") {
    Scene scene = tree();
    scene.rule.end_tokens = {1};
    CHECK(scene.walk().tokens == std::vector<TokenId>{1});
}

TEST_CASE("the token count and the context end the walk at the exact token") {
    Scene counted = tree();
    counted.rule.max_tokens = 3;
    CHECK(counted.walk().tokens == std::vector<TokenId>{1, 5, 6});
    CHECK(counted.walk().finish == FinishReason::MaxTokens);
    Scene full = tree();
    full.rule.context = 3;  // positions 0, 1, 2
    CHECK(full.walk().tokens == std::vector<TokenId>{1, 5});
    CHECK(full.walk().finish == FinishReason::ContextFull);
}

TEST_CASE("penalties see the prompt, the committed tokens and the path") {
    Scene scene = tree();
    scene.sampling.presence_penalty = 6.0F;  // more than what the preferred token is ahead by
    scene.wants = {1, 1, 0, 0, 0, 0};
    // At the root 1 is new; at a it was just accepted on the path, so the lowest other id wins.
    CHECK(scene.walk().tokens == std::vector<TokenId>{1, 0});
}

TEST_CASE("a verdict never holds more than a message can carry") {
    Scene scene;
    scene.rule.context = 1000;
    scene.row(0, msg::kNoParent, 4, 0, 1);
    for (std::uint32_t i = 1; i < kVerifyRowsMax; ++i) {
        scene.row(i, i - 1, 1, static_cast<Position>(i), 1);
    }
    const WalkResult result = scene.walk();
    CHECK(result.tokens.size() == kGammaMax + 1);
    CHECK(result.nodes.size() == kGammaMax);
}

TEST_CASE("a row without any token ends the walk after what was accepted before it") {
    Scene scene = tree();
    scene.wants[4] = kNothing;
    const WalkResult result = scene.walk();
    CHECK(result.finish == FinishReason::Failed);
    CHECK(result.tokens == std::vector<TokenId>{1, 5});  // 5 takes the place of the own token
    CHECK(result.nodes == std::vector<NodeId>{NodeId{11}});
    CHECK(result.last_row == 1);
    scene.wants[0] = kNothing;
    CHECK(scene.walk().tokens.empty());
}

TEST_CASE("a grammar that cannot be loaded ends the walk before any token, and says so") {
    const Scene scene = tree();
    const auto grammars = testing::toy_grammars();
    AnswerGrammar damaged{*grammars,
                          std::make_shared<const CompiledGrammar>(CompiledGrammar{"a", "damaged"}),
                          {testing::kToyEnd},
                          static_cast<Position>(scene.committed.size())};
    BatchWalk walk{{.rows = scene.rows,
                    .committed = scene.committed,
                    .sampling = scene.sampling,
                    .finish = scene.rule,
                    .grammar = &damaged}};
    CHECK_FALSE(walk.wanted());
    const WalkResult result = walk.take();
    CHECK(result.finish == FinishReason::GrammarFailed);
    CHECK(result.tokens.empty());
}

TEST_CASE("the likely path goes down first children, itself included, no further than asked") {
    const Scene scene = tree();
    const BatchWalk walk{{.rows = scene.rows,
                          .committed = scene.committed,
                          .sampling = scene.sampling,
                          .finish = scene.rule}};
    CHECK(walk.likely_path(0, 8) == std::vector<std::size_t>{0, 1, 2, 3});
    CHECK(walk.likely_path(0, 2) == std::vector<std::size_t>{0, 1});
    CHECK(walk.likely_path(4, 8) == std::vector<std::size_t>{4, 5});
    CHECK(walk.likely_path(3, 8) == std::vector<std::size_t>{3});
}

TEST_CASE("coupled text is the text of plain sampling, whatever random trees are verified") {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        SamplingParams sampling{.temperature = seed % 3 == 0 ? 0.0F : 0.9F,
                                .top_p = 0.95F,
                                .presence_penalty = seed % 2 == 0 ? 0.3F : 0.0F,
                                .seed = seed};
        const FinishRule rule{
            .end_tokens = {7}, .max_tokens = 30, .answer_begin = 1, .context = 1000};
        SamplerScratch scratch;
        std::vector<float> logits(kVocab);
        // A model of the text: the last two tokens decide.
        const auto fill = [&](TokenId before, TokenId last) {
            std::mt19937_64 row{seed * 1000 + static_cast<std::uint64_t>(before * kVocab + last)};
            for (float& logit : logits) logit = static_cast<float>(row() % 1000) / 250.0F;
        };
        std::vector<TokenId> plain{0, 4};
        for (FinishReason end = FinishReason::None; end == FinishReason::None;) {
            fill(plain[plain.size() - 2], plain.back());
            const auto position = static_cast<Position>(plain.size());
            plain.push_back(
                sample(logits, position, {.committed = plain, .path = {}}, sampling, scratch)
                    .value());
            end = rule.after(plain.back(), position);
        }
        std::vector<TokenId> text{0, 4};
        for (FinishReason end = FinishReason::None; end == FinishReason::None;) {
            std::vector<msg::BatchRow> rows{{NodeId{0}, msg::kNoParent, text.back(),
                                             static_cast<Position>(text.size()) - 1, 0}};
            for (std::uint32_t i = 1; i < 12; ++i) {
                const msg::BatchRow& parent = rows[random() % rows.size()];
                const std::size_t next = static_cast<std::size_t>(parent.position) + 1;
                const bool right = random() % 2 == 0 && next < plain.size();
                const TokenId token = right ? plain[next] : static_cast<TokenId>(random() % kVocab);
                const bool duplicate = std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
                    return row.parent == parent.node.value && row.token == token;
                });
                if (duplicate) continue;
                rows.push_back({NodeId{i}, parent.node.value, token, parent.position + 1, 0});
            }
            BatchWalk walk{{.rows = rows, .committed = text, .sampling = sampling, .finish = rule}};
            while (const auto at = walk.wanted()) {
                const msg::BatchRow& row = rows[*at];
                const auto above = std::find_if(rows.begin(), rows.end(), [&](const auto& each) {
                    return each.node.value == row.parent;
                });
                fill(above == rows.end() ? text[text.size() - 2] : above->token, row.token);
                walk.feed(logits, scratch);
            }
            const WalkResult result = walk.take();
            text.insert(text.end(), result.tokens.begin(), result.tokens.end());
            end = result.finish;
        }
        REQUIRE(text == plain);
    }
}
