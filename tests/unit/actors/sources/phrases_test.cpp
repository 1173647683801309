// Phrases around a draft model: what goes into the pool, what is proposed below the trunk, and what
// a pass of the draft tries.
#include "actors/draft/phrases.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

using Tokens = std::vector<TokenId>;

PhraseOptions options_of(std::int32_t phrases, std::int32_t ngram, bool from_text = false) {
    return {
        .phrases = phrases,
        .lookahead = {.window = 3, .ngram = ngram, .guesses = 4, .pool_from_prompt = from_text}};
}

/// A trunk of these tokens below a root with token `root`.
DraftTree tree_of(TokenId root, const Tokens& trunk) {
    DraftTree tree{256};
    tree.plant(root, 10);
    DraftNodeId at = tree.root().id;
    for (const TokenId token : trunk) {
        const std::vector<Candidate> said{{.token = token, .log_prob = -0.1F}};
        tree.expand(at, said);
        at = tree.child(at, token)->id;
    }
    return tree;
}

/// Paths below the root that end in a leaf, in the order of the nodes.
std::vector<Tokens> leaves_of(const DraftTree& tree) {
    std::vector<Tokens> leaves;
    for (const DraftNode& node : tree.nodes()) {
        if (tree.trunk_child(node.id) != nullptr) continue;
        Tokens path;
        for (const DraftNode* step : tree.path(node.id)) {
            if (step->id != tree.root().id) path.push_back(step->token);
        }
        leaves.push_back(path);
    }
    return leaves;
}

/// The trunk's nodes with their names.
std::vector<std::uint8_t> names_of(const DraftTree& tree) {
    std::vector<std::uint8_t> names;
    for (const DraftNode& node : tree.nodes()) {
        if (node.observe != 0) names.push_back(node.observe);
    }
    return names;
}

/// The pool as its text has it: n-grams by first token, the newest first.
struct PlainPool {
    std::size_t kept;
    std::map<TokenId, std::deque<Tokens>> known = {};

    void add(const Tokens& ngram) {
        std::deque<Tokens>& list = known[ngram.front()];
        const Tokens rest(ngram.begin() + 1, ngram.end());
        list.erase(std::remove(list.begin(), list.end(), rest), list.end());
        list.push_front(rest);
        if (list.size() > kept) list.pop_back();
    }
};

DraftTools phrasing(FakeBackend& backend,
                    const PhraseOptions& options,
                    std::shared_ptr<NgramPool> pool) {
    DraftTools tools = with_model(backend);
    tools.phrases = options;
    tools.phrase_pool = std::move(pool);
    return tools;
}

Request short_request() {
    Request request;
    request.text = {1, 2, 3, 4, 5};
    request.context = 200;
    return request;
}

/// The texts by which plain decoding goes on, `count` tokens.
Tokens continuation(const Request& spec, std::size_t count) {
    Tokens text = spec.text;
    for (std::size_t i = 0; i < count; ++i) text.push_back(plain_next(spec, text));
    return {text.begin() + static_cast<std::ptrdiff_t>(spec.text.size()), text.end()};
}

/// Passes of the model until the round is complete, and its last proposal.
std::pair<int, msg::Proposal> round_of(DraftBench& bench) {
    int passes = 0;
    while (bench.context.run_job()) REQUIRE(++passes < 40);
    const std::vector<msg::Proposal> sent = bench.proposals();
    REQUIRE(!sent.empty());
    CHECK(sent.back().state == msg::ProposalState::Complete);
    return {passes, sent.back()};
}

/// The chain of the draft's own first choices in a proposal.
Tokens trunk_in(const msg::Proposal& proposal) {
    Tokens trunk;
    std::int32_t at = msg::kBelowRoot;
    for (std::uint32_t i = 0; i < proposal.count; ++i) {
        const msg::ProposedNode& node = proposal.nodes[i];
        if (node.parent != at || node.origin != msg::Origin::Trunk) continue;
        trunk.push_back(node.token);
        at = static_cast<std::int32_t>(i);
    }
    return trunk;
}

}  // namespace

TEST_CASE("the newest K phrases that follow the tip's token stand below it, and are not expanded") {
    const PhraseOptions options = options_of(2, 3);
    const auto pool = options.make_pool();
    pool->add(7, Tokens{1, 2});
    pool->add(7, Tokens{3, 4});
    pool->add(7, Tokens{3, 5});
    pool->add(6, Tokens{8, 8});
    Phrases phrases{options, pool};
    phrases.commit(Tokens{9});
    DraftTree tree = tree_of(9, {6, 7});
    phrases.extend(tree, 20);
    CHECK(leaves_of(tree) == std::vector<Tokens>{{6, 7, 3, 5}, {6, 7, 3, 4}});
    CHECK(names_of(tree).size() == 2);  // of the trunk
    for (const DraftNode& node : tree.nodes()) {
        if (node.origin != msg::Origin::Lookup) continue;
        CHECK(node.expanded);
        CHECK(node.observe == 0);
    }
    DraftTree shallow = tree_of(9, {6, 7});
    phrases.extend(shallow, 3);
    CHECK(leaves_of(shallow) == std::vector<Tokens>{{6, 7, 3}});
    DraftTree other = tree_of(9, {6});  // below another token, and below a root alone
    phrases.extend(other, 20);
    CHECK(leaves_of(other) == std::vector<Tokens>{{6, 8, 8}});
    DraftTree bare = tree_of(7, {});
    phrases.extend(bare, 20);
    CHECK(leaves_of(bare) == std::vector<Tokens>{{3, 5}, {3, 4}});
}

TEST_CASE(
    "in 500 rounds the pool has the own tokens from the first rejected row on, as a plain pool") {
    for (const bool from_text : {false, true}) {
        CAPTURE(from_text);
        const PhraseOptions options = options_of(3, 3, from_text);
        Phrases phrases{options, nullptr};
        PlainPool plain{.kept = 4};
        std::mt19937_64 random{from_text ? 5U : 6U};
        const auto any = [&] { return static_cast<TokenId>(random() % 5); };
        Tokens text{1, 2, 3};
        const auto add_text = [&](std::size_t tokens) {
            for (std::size_t end = text.size() - tokens + 1; from_text && end <= text.size();
                 ++end) {
                if (end < 3) continue;
                plain.add({text.begin() + static_cast<std::ptrdiff_t>(end) - 3,
                           text.begin() + static_cast<std::ptrdiff_t>(end)});
            }
        };
        phrases.commit(text);
        add_text(text.size());
        for (int round = 0; round < 500; ++round) {
            CAPTURE(round);
            Tokens trunk;
            for (std::size_t i = random() % 8; i > 0; --i) trunk.push_back(any());
            DraftTree tree = tree_of(text.back(), trunk);
            phrases.extend(tree, 30);
            const std::vector<std::uint8_t> names = names_of(tree);
            REQUIRE(names.size() == trunk.size());
            // What the target says after each row; sometimes some of it, or all, is lost.
            Tokens said;
            std::vector<bool> told;
            std::vector<msg::OwnToken> own;
            for (std::size_t i = 0; i < trunk.size(); ++i) {
                said.push_back(any());
                told.push_back(round % 7 != 0 && random() % 6 != 0);
                if (told.back()) own.push_back({.node = names[i], .token = said.back()});
            }
            phrases.observe(own);
            if (round % 3 == 0) phrases.observe(own);  // twice
            const std::size_t accepted = trunk.empty() ? 0 : random() % (trunk.size() + 1);
            Tokens committed(trunk.begin(), trunk.begin() + static_cast<std::ptrdiff_t>(accepted));
            // The target's own: not what the draft has there.
            committed.push_back(accepted < trunk.size() ? (trunk[accepted] + 1) % 5 : any());
            phrases.commit(committed);
            for (std::size_t i = accepted; i + 3 <= trunk.size(); ++i) {
                if (told[i] && told[i + 1] && told[i + 2])
                    plain.add({said[i], said[i + 1], said[i + 2]});
            }
            text.insert(text.end(), committed.begin(), committed.end());
            add_text(committed.size());
            for (TokenId token = 0; token < 5; ++token)
                REQUIRE(phrases.pool().after(token) == plain.known[token]);
        }
    }
}

TEST_CASE("the pool forgets the first token that was added to least recently") {
    NgramPool pool{2, 3, 2};
    pool.add(1, Tokens{5});
    pool.add(2, Tokens{5});
    pool.add(1, Tokens{6});
    pool.add(3, Tokens{5});
    CHECK(pool.firsts() == 2);
    CHECK(pool.after(2).empty());
    CHECK(pool.after(1).size() == 2);
    CHECK(pool.after(3).size() == 1);
}

TEST_CASE(
    "tentative nodes are in no proposal, and go after the pass unless the model proposes them") {
    DraftTree tree = tree_of(9, {});
    const DraftNodeId root = tree.root().id;
    const DraftNodeId right = *tree.add_tentative(root, 3, -0.1F);
    const DraftNodeId below = *tree.add_tentative(right, 4, -0.1F);
    const DraftNodeId wrong = *tree.add_tentative(root, 5, -0.1F);
    tree.set_slot(root, KvSlot{0});
    tree.set_slot(wrong, KvSlot{1});
    CHECK(*tree.add_tentative(root, 3, -2.0F) == right);
    CHECK(tree.snapshot(100).count == 0);
    const std::vector<Candidate> three{{.token = 3, .log_prob = -0.2F}};
    const std::vector<Candidate> six{{.token = 6, .log_prob = -0.2F}};
    tree.expand(root, three);
    tree.expand(right, six);
    tree.expand(below, six);
    tree.expand(wrong, six);
    tree.drop_tentative();
    CHECK(leaves_of(tree) == std::vector<Tokens>{{3, 6}});
    CHECK(tree.find(right)->origin == msg::Origin::Trunk);
    const std::vector<DraftTree::Freed> freed = tree.take_freed();
    REQUIRE(freed.size() == 1);
    CHECK(freed.front().slot == KvSlot{1});
    // One that became text is the root like any other.
    const DraftNodeId next = *tree.add_tentative(root, 8, -3.0F);
    CHECK(tree.follow(Tokens{8}).prepared);
    CHECK(tree.root().id == next);
    tree.drop_tentative();
    CHECK(tree.nodes().size() == 1);
}

TEST_CASE(
    "guesses that are the draft's own choices make a chain of fewer passes, and the same one") {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
        CAPTURE(seed);
        Request request = short_request();
        request.text.push_back(static_cast<TokenId>(10 + seed));
        request.sampling.seed = seed;
        if (seed % 2 == 1) request.sampling.temperature = 0.8F;
        const GrowthRule rule{.gamma = 8, .draft_reach_min = 0.0F};
        FakeBackend plain{0, kFakeLayers, 1024};
        DraftBench alone{plan_of(rule), with_model(plain)};
        alone.begin(request);
        const auto [passes, chain] = round_of(alone);
        CHECK(passes == 8);

        const PhraseOptions options = options_of(0, 4);
        const auto pool = options.make_pool();
        // What follows, and beside it what does not.
        Tokens text = request.text;
        const Tokens next = continuation(request, 12);
        text.insert(text.end(), next.begin(), next.end());
        pool->add_end_of(text, next.size() + 1);
        for (TokenId token = 0; token < kFakeVocab; ++token) pool->add(token, Tokens{1, 1, 1});
        FakeBackend backend{0, kFakeLayers, 1024};
        DraftBench bench{plan_of(rule), phrasing(backend, options, pool)};
        bench.begin(request);
        const auto [fewer, phrased] = round_of(bench);
        CHECK(fewer < 8);
        CHECK(fewer >= 2);  // at most four tokens in a pass
        CHECK(phrased.count == 8);
        CHECK(trunk_in(phrased) == chain_of(chain));
    }
}

TEST_CASE("with an empty pool the chain is the same one, and the window fills the pool") {
    const Request request = short_request();
    const GrowthRule rule{.gamma = 6, .draft_reach_min = 0.0F};
    FakeBackend plain{0, kFakeLayers, 1024};
    DraftBench alone{plan_of(rule), with_model(plain)};
    alone.begin(request);
    const PhraseOptions options = options_of(2, 3);
    const auto pool = options.make_pool();
    FakeBackend backend{0, kFakeLayers, 1024};
    DraftBench bench{plan_of(rule), phrasing(backend, options, pool)};
    bench.begin(request);
    for (int round = 0; round < 6; ++round) {
        CAPTURE(round);
        const msg::Proposal chain = round_of(alone).second;
        const msg::Proposal phrased = round_of(bench).second;
        CHECK(trunk_in(phrased) == chain_of(chain));
        Tokens text = bench.text;
        for (std::uint32_t i = 0; i < phrased.count; ++i) {
            // Only the trunk and phrases below its tip.
            const bool is_trunk = phrased.nodes[i].origin == msg::Origin::Trunk;
            CHECK((is_trunk || phrased.nodes[i].origin == msg::Origin::Lookup));
            CHECK((phrased.nodes[i].observe != 0) == is_trunk);
        }
        // The target disagrees at once.
        const TokenId own = (chain_of(chain).front() + 1) % kFakeVocab;
        alone.verdict({own});
        bench.verdict({own});
    }
    CHECK(pool->firsts() > 0);
}

TEST_CASE("a verdict in the middle of a pass, at random, leaves no tentative node in a proposal") {
    std::size_t proposals = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        FakeBackend backend{0, kFakeLayers, 1024};
        const PhraseOptions options = options_of(static_cast<std::int32_t>(seed % 4), 3, true);
        DraftBench bench{plan_of({.gamma = 5}), phrasing(backend, options, nullptr)};
        bench.begin(short_request());
        for (int event = 0; event < 60; ++event) {
            if (random() % 3 != 0) {
                (void)bench.context.run_job();
            } else if (bench.text.size() < 150) {
                bench.verdict(random() % 2 == 0
                                  ? Tokens{static_cast<TokenId>(random() % kFakeVocab)}
                                  : Tokens{plain_next(bench.spec, bench.text)});
            }
            for (const msg::Proposal& proposal : bench.proposals()) {
                check_proposal(bench, proposal, random);
                ++proposals;
            }
        }
        CHECK_FALSE(bench.context.failure);
    }
    CHECK(proposals > 20);
}
