// EAGLE-2's tree (GrowthTree::Levels) against all texts of its depth, written down from the
// paper's words: each level expands its k most probable nodes into k children, then the most
// probable of all nodes are kept.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/growth.hpp"
#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

using Path = std::vector<TokenId>;

/// A model of `vocab` tokens whose distribution after a path is a function of the path.
struct ToyModel {
    TokenId vocab;
    std::uint64_t seed;

    /// Log probabilities, no two of them equal.
    [[nodiscard]] std::vector<float> after(const Path& path) const {
        std::seed_seq words(path.begin(), path.end());
        std::vector<std::uint32_t> mixed(2);
        words.generate(mixed.begin(), mixed.end());
        std::mt19937_64 random{seed + mixed[0] + 4294967296ULL * mixed[1]};
        std::vector<float> weights;
        float sum = 0.0F;
        for (TokenId token = 0; token < vocab; ++token) {
            weights.push_back(std::exp(std::uniform_real_distribution<float>{0.0F, 3.0F}(random)));
            sum += weights.back();
        }
        for (float& weight : weights) weight = std::log(weight / sum);
        return weights;
    }
    [[nodiscard]] std::vector<Candidate> best_after(const Path& path, std::size_t count) const {
        const std::vector<float> log_probs = after(path);
        std::vector<Candidate> all;
        for (TokenId token = 0; token < vocab; ++token)
            all.push_back({token, log_probs[static_cast<std::size_t>(token)]});
        std::sort(all.begin(), all.end(),
                  [](const Candidate& a, const Candidate& b) { return a.log_prob > b.log_prob; });
        all.resize(std::min(count, all.size()));
        return all;
    }
};

void add_texts(Path& text, std::size_t depth, TokenId vocab, std::vector<Path>& texts) {
    if (!text.empty()) texts.push_back(text);
    if (text.size() == depth) return;
    for (TokenId token = 0; token < vocab; ++token) {
        text.push_back(token);
        add_texts(text, depth, vocab, texts);
        text.pop_back();
    }
}

/// The kept nodes, by looking at every text of at most `depth` tokens.
std::set<Path> enumerated(const ToyModel& model, const GrowthRule& rule) {
    std::vector<Path> texts;
    Path none;
    add_texts(none, static_cast<std::size_t>(rule.gamma), model.vocab, texts);
    std::map<Path, float> path_log_prob{{{}, 0.0F}};
    std::map<Path, std::size_t> rank;  // among its siblings
    std::sort(texts.begin(), texts.end(),
              [](const Path& a, const Path& b) { return a.size() < b.size(); });
    for (const Path& text : texts) {
        const Path above(text.begin(), text.end() - 1);
        const std::vector<float> siblings = model.after(above);
        const float own = siblings[static_cast<std::size_t>(text.back())];
        path_log_prob[text] = path_log_prob[above] + own;
        rank[text] = static_cast<std::size_t>(std::count_if(
            siblings.begin(), siblings.end(), [&](float other) { return other > own; }));
    }
    const auto width = static_cast<std::size_t>(rule.width);
    const auto by_probability = [&](const Path& a, const Path& b) {
        return path_log_prob[a] > path_log_prob[b];
    };
    std::set<Path> chosen{{}};
    std::vector<Path> candidates;
    for (std::size_t depth = 1; depth <= static_cast<std::size_t>(rule.gamma); ++depth) {
        std::vector<Path> level;
        for (const Path& text : texts) {
            const Path above(text.begin(), text.end() - 1);
            if (text.size() == depth && rank[text] < width && chosen.contains(above))
                level.push_back(text);
        }
        candidates.insert(candidates.end(), level.begin(), level.end());
        std::sort(level.begin(), level.end(), by_probability);
        chosen.clear();
        for (std::size_t i = 0; i < std::min(width, level.size()); ++i) chosen.insert(level[i]);
    }
    std::sort(candidates.begin(), candidates.end(), by_probability);
    candidates.resize(std::min(candidates.size(), static_cast<std::size_t>(rule.tree_nodes)));
    return {candidates.begin(), candidates.end()};
}

Path path_to(const DraftTree& tree, DraftNodeId id) {
    Path path;
    for (const DraftNode* step : tree.path(id)) {
        if (step->id != tree.root().id) path.push_back(step->token);
    }
    return path;
}

GrowthRule rule_of(std::int32_t width, std::int32_t levels, std::int32_t kept) {
    return {.gamma = levels,
            .tree = GrowthTree::Levels,
            .tree_nodes = kept,
            .width = width,
            .branch_budget = 0,
            .draft_reach_min = 0.0F};
}

}  // namespace

TEST_CASE("the tree is that of an enumeration of all texts, in one pass for each level") {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        const auto width = static_cast<std::int32_t>(1 + seed % 4);
        const auto levels = static_cast<std::int32_t>(1 + seed % 5);
        const GrowthRule rule = rule_of(width, levels, 3 + static_cast<std::int32_t>(seed) * 2);
        const ToyModel model{.vocab = 5, .seed = seed};
        Growth growth{rule};
        DraftTree tree{384};
        tree.plant(0, 0);
        std::int32_t passes = 0;
        Growth::Step step = growth.next(tree, 100);
        for (; !step.expand.empty(); step = growth.next(tree, 100)) {
            CHECK(step.expand.size() <= static_cast<std::size_t>(width));
            for (const DraftNodeId id : step.expand) {
                CHECK(tree.depth(*tree.find(id)) == passes);
                tree.expand(id, model.best_after(path_to(tree, id),
                                                 static_cast<std::size_t>(rule.children())));
            }
            growth.passed();
            ++passes;
        }
        CHECK(passes == levels);
        REQUIRE(step.say);
        CHECK(*step.say == msg::ProposalState::Complete);
        const msg::Proposal proposal =
            tree.snapshot(100, static_cast<std::size_t>(rule.proposed_max()));
        std::set<Path> kept;
        for (std::uint32_t i = 0; i < proposal.count; ++i)
            kept.insert(path_in(proposal, static_cast<std::int32_t>(i)));
        CHECK(kept.size() == proposal.count);
        CHECK(kept == enumerated(model, rule));
    }
}

TEST_CASE("after a verdict the levels below the new root are completed, not drafted again") {
    const GrowthRule rule = rule_of(2, 3, 20);
    const ToyModel model{.vocab = 5, .seed = 4};
    Growth growth{rule};
    DraftTree tree{384};
    tree.plant(0, 0);
    const auto grow = [&](Path text) {
        int expanded = 0;
        for (Growth::Step step = growth.next(tree, 100); !step.expand.empty();
             step = growth.next(tree, 100)) {
            for (const DraftNodeId id : step.expand) {
                Path path = text;
                for (const TokenId token : path_to(tree, id)) path.push_back(token);
                tree.expand(id, model.best_after(path, 2));
                ++expanded;
            }
            growth.passed();
        }
        return expanded;
    };
    CHECK(grow({}) == 5);  // the root, then two nodes of each of two levels
    const TokenId best = model.best_after({}, 1).front().token;
    const bool prepared = tree.follow(std::vector<TokenId>{best}).prepared;
    REQUIRE(prepared);
    growth.verified(0, 3, prepared);
    int known = 0;
    for (const DraftNode& node : tree.nodes()) known += node.expanded ? 1 : 0;
    CHECK(known >= 1);
    CHECK(grow({best}) + known >= 5);
    for (const DraftNode& node : tree.nodes()) CHECK(tree.depth(node) <= 3);
}

TEST_CASE("an improbable path is not chosen, and room for fewer tokens gives fewer levels") {
    GrowthRule rule = rule_of(2, 5, 30);
    rule.draft_reach_min = 0.3F;
    DraftTree tree{384};
    tree.plant(0, 0);
    const std::vector<Candidate> children{{.token = 1, .log_prob = std::log(0.6F)},
                                          {.token = 2, .log_prob = std::log(0.2F)}};
    tree.expand(tree.root().id, children);
    const std::vector<DraftNodeId> open = level_to_expand(tree, rule, 5);
    REQUIRE(open.size() == 1);
    CHECK(tree.find(open.front())->token == 1);
    CHECK(level_to_expand(tree, rule, 1).empty());
    CHECK(Growth{rule}.next(tree, 1).say == msg::ProposalState::Complete);
}

TEST_CASE("a draft with a model proposes no more candidates than are kept") {
    FakeBackend backend{0, kFakeLayers, 1024};
    GrowthRule rule = rule_of(4, 4, 17);
    DraftBench bench{plan_of(rule), with_model(backend)};
    Request request;
    request.text = {1, 2, 3};
    request.context = 200;
    bench.begin(request);
    for (int passes = 0; bench.context.run_job(); ++passes) CHECK(passes < 4);
    const std::vector<msg::Proposal> proposals = bench.proposals();
    REQUIRE(!proposals.empty());
    const msg::Proposal& last = proposals.back();
    CHECK(last.state == msg::ProposalState::Complete);
    CHECK(last.count == 17);  // of 4 + 16 + 16 + 16
    for (std::uint32_t i = 0; i < last.count; ++i)
        CHECK(path_in(last, static_cast<int>(i)).size() <= 4);
    // Its trunk is the model's own text.
    std::vector<TokenId> text = bench.text;
    std::int32_t at = msg::kBelowRoot;
    for (std::uint32_t i = 0; i < last.count; ++i) {
        const msg::ProposedNode& node = last.nodes[i];
        if (node.parent != at || node.origin != msg::Origin::Trunk) continue;
        CHECK(node.token == plain_next(bench.spec, text));
        text.push_back(node.token);
        at = static_cast<std::int32_t>(i);
    }
    CHECK(text.size() > bench.text.size());
}
