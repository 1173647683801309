// The distribution of the tokens that the rejection rule commits, by exact enumeration: every
// random decision is tried, weighted with its probability.
#include "actors/decoding/rejection.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/acceptance.hpp"
#include "model/sampling/candidates.hpp"
#include "model/sampling/sampler_scratch.hpp"
#include "tests/unit/actors/rejection/every_way.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// `count` siblings drawn from q without putting back.
std::vector<TokenId> drawn(Weights q, std::size_t count, Chance& chance) {
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < count; ++i) {
        if (std::all_of(q.begin(), q.end(), [](double weight) { return weight <= 0.0; })) break;
        tokens.push_back(static_cast<TokenId>(chance.pick(q)));
        q[static_cast<std::size_t>(tokens.back())] = 0.0;
    }
    return tokens;
}

/// A model of five tokens: the last two tokens of the text decide.
constexpr int kVocab = 5;
void fill_logits(std::uint64_t seed, TokenId before, TokenId last, std::vector<float>& logits) {
    std::mt19937_64 random{seed * 1000 + static_cast<std::uint64_t>(before * kVocab + last)};
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 250.0F;
}

struct Toy {
    std::uint64_t seed = 1;
    SamplingParams sampling = {};
    FinishRule rule = {};
    SamplerScratch scratch = {};
    std::vector<float> logits = std::vector<float>(kVocab);

    /// One token after the other, from the target's own p.
    std::vector<TokenId> plain(Chance& chance) {
        std::vector<TokenId> text{0, 3};
        std::vector<float> p(kVocab);
        for (FinishReason end = FinishReason::None; end == FinishReason::None;) {
            fill_logits(seed, text[text.size() - 2], text.back(), logits);
            REQUIRE(probabilities(logits, {.committed = text, .path = {}}, sampling, p, scratch));
            const Weights weights(p.begin(), p.end());
            const auto position = static_cast<Position>(text.size());
            text.push_back(static_cast<TokenId>(chance.pick(weights)));
            end = rule.after(text.back(), position);
        }
        return text;
    }
    /// Candidate tokens after a text, as a draft that knows nothing of chance: a tree of some
    /// shape.
    std::vector<msg::BatchRow> batch(const std::vector<TokenId>& text, std::size_t shape) const {
        std::mt19937_64 random{seed + text.size() * 31 +
                               static_cast<std::uint64_t>(text.back()) * 7};
        std::vector<msg::BatchRow> rows{
            {NodeId{0}, msg::kNoParent, text.back(), static_cast<Position>(text.size()) - 1, 0}};
        const auto add = [&](std::uint32_t parent, TokenId token) {
            const auto node = static_cast<std::uint32_t>(rows.size());
            rows.push_back({NodeId{node}, parent, token, rows[parent].position + 1, 0});
            return node;
        };
        const auto token = [&] { return static_cast<TokenId>(random() % kVocab); };
        std::uint32_t at = 0;
        for (std::size_t depth = 0; depth < 1 + shape % 3; ++depth) {
            const TokenId first = token();
            const std::uint32_t trunk = add(at, first);
            for (TokenId i = 1; i <= static_cast<TokenId>(shape / 3); ++i) {
                const std::uint32_t sibling = add(at, (first + i) % kVocab);
                if (random() % 2 == 0) add(sibling, token());
            }
            at = trunk;
        }
        return rows;
    }
    std::vector<TokenId> speculative(std::size_t shape, Chance& chance) {
        std::vector<TokenId> text{0, 3};
        for (FinishReason end = FinishReason::None; end == FinishReason::None;) {
            const std::vector<msg::BatchRow> rows = batch(text, shape);
            BatchWalk walk{{.rows = rows,
                            .committed = text,
                            .sampling = sampling,
                            .finish = rule,
                            .rule = AcceptanceRule::Rejection,
                            .chance = &chance}};
            while (const auto at = walk.wanted()) {
                const msg::BatchRow& row = rows[*at];
                const TokenId before =
                    row.parent == msg::kNoParent ? text[text.size() - 2] : rows[row.parent].token;
                fill_logits(seed, before, row.token, logits);
                walk.feed(logits, scratch);
            }
            const WalkResult result = walk.take();
            REQUIRE(result.nodes.size() + 1 == result.tokens.size());
            text.insert(text.end(), result.tokens.begin(), result.tokens.end());
            end = result.finish;
        }
        return text;
    }
};

}  // namespace

TEST_CASE("siblings that were not drawn leave the target's distribution as it is") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const std::size_t vocab = 4 + seed % 3;
        const Weights p = random_weights(random, vocab, true);
        std::vector<TokenId> candidates(vocab);
        std::iota(candidates.begin(), candidates.end(), 0);
        std::shuffle(candidates.begin(), candidates.end(), random);
        candidates.resize(random() % (vocab + 1));
        const Distribution distribution = distribution_of([&](Chance& chance) {
            Weights left = p;
            const Choice choice = choose(left, {.tokens = candidates}, chance);
            if (choice.candidate) REQUIRE(candidates[*choice.candidate] == choice.token);
            return std::vector{choice.token};
        });
        REQUIRE(distance(distribution, distribution_of_weights(p)) < 1e-12);
    }
}

TEST_CASE("siblings drawn from a q without putting back leave the target's distribution as it is") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const std::size_t vocab = 4 + seed % 3;
        const Weights p = random_weights(random, vocab, true);
        const Weights q = seed % 10 == 0 ? p : random_weights(random, vocab, true);
        const std::size_t count = seed % 4;
        const Distribution distribution = distribution_of([&](Chance& chance) {
            const std::vector<TokenId> candidates = drawn(q, count, chance);
            Weights left = p;
            Weights proposed_from = q;
            return std::vector{
                choose(left, {.tokens = candidates, .q = proposed_from}, chance).token};
        });
        REQUIRE(distance(distribution, distribution_of_weights(p)) < 1e-9);
    }
}

TEST_CASE("the enumeration sees an argmax draft that is verified as if it had been drawn") {
    const Weights p{1, 2, 3, 4};
    const Weights q{1, 1, 5, 3};
    const Distribution distribution = distribution_of([&](Chance& chance) {
        Weights left = p;
        Weights proposed_from = q;
        const std::vector<TokenId> best{2};
        return std::vector{choose(left, {.tokens = best, .q = proposed_from}, chance).token};
    });
    CHECK(distance(distribution, distribution_of_weights(p)) > 0.05);
}

TEST_CASE("the enumeration sees a sibling that is not taken out after it was rejected") {
    const Weights p{1, 2, 3, 4};
    const Distribution distribution = distribution_of([&](Chance& chance) {
        if (chance.happens(0.3)) return std::vector<TokenId>{2};
        if (chance.happens(0.4)) return std::vector<TokenId>{3};
        return std::vector{static_cast<TokenId>(chance.pick(p))};
    });
    CHECK(distance(distribution, distribution_of_weights(p)) > 0.05);
    // Drawn siblings: the second one is accepted by the q that the first one came from.
    const Weights q{4, 3, 2, 1};
    const Distribution kept = distribution_of([&](Chance& chance) {
        const std::vector<TokenId> candidates = drawn(q, 2, chance);
        Weights left = p;
        for (const TokenId candidate : candidates) {
            Weights whole = q;
            const std::vector<TokenId> one{candidate};
            const Choice choice = choose(left, {.tokens = one, .q = whole}, chance);
            if (choice.candidate || candidate == candidates.back())
                return std::vector{choice.token};
            left = p;
            for (std::size_t i = 0; i < left.size(); ++i) {
                left[i] = std::max(left[i] / 10.0 - q[i] / 10.0, 0.0);
            }
        }
        return std::vector<TokenId>{};
    });
    CHECK(distance(kept, distribution_of_weights(p)) > 0.01);
}

TEST_CASE(
    "the distribution of a committed text is that of plain sampling: chains, siblings, filters") {
    for (std::uint64_t seed = 1; seed <= 36; ++seed) {
        CAPTURE(seed);
        Toy toy;
        toy.seed = seed;
        toy.sampling.temperature =
            seed % 4 == 0 ? 0.0F : 0.6F + 0.3F * static_cast<float>(seed % 3);
        toy.sampling.top_k = seed % 5 == 0 ? 3 : 0;
        toy.sampling.top_p = seed % 3 == 0 ? 0.8F : 1.0F;
        toy.sampling.presence_penalty = seed % 7 == 0 ? 0.5F : 0.0F;
        toy.rule = {.end_tokens = {4}, .max_tokens = 3, .answer_begin = 2, .context = 100};
        const std::size_t shape = seed % 9;  // depth 1 .. 3, none to two siblings
        const Distribution plain =
            distribution_of([&](Chance& chance) { return toy.plain(chance); });
        const Distribution spoken =
            distribution_of([&](Chance& chance) { return toy.speculative(shape, chance); });
        REQUIRE(distance(plain, spoken) < 1e-9);
        if (toy.sampling.greedy()) CHECK(spoken.size() == 1);
    }
}

TEST_CASE("the counter's decisions follow their probabilities and repeat with their seed") {
    constexpr int kDraws = 40000;
    const Weights weights{1, 0, 3, 4};
    std::vector<int> counts(4);
    int happened = 0;
    int both = 0;  // a decision and the first one of the next position: independent
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
        CounterChance chance{seed, 7};
        const bool first = chance.happens(0.3);
        happened += first ? 1 : 0;
        const std::size_t picked = chance.pick(weights);
        ++counts[picked];
        CounterChance next{seed, 8};
        both += first && next.happens(0.3) ? 1 : 0;
        CounterChance again{seed, 7};
        REQUIRE(again.happens(0.3) == first);
        REQUIRE(again.pick(weights) == picked);
    }
    const auto near = [&](int count, double p) {
        return std::abs(count - kDraws * p) < 5.0 * std::sqrt(kDraws * p * (1 - p)) + 1e-9;
    };
    CHECK(near(happened, 0.3));
    CHECK(near(both, 0.09));
    CHECK(near(counts[0], 0.125));
    CHECK(counts[1] == 0);
    CHECK(near(counts[2], 0.375));
    CHECK(near(counts[3], 0.5));
}
