#include "actors/decoding/draft_tree.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "ipc/base/limits.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

using Path = std::vector<TokenId>;  // below the root; the root's is empty

/// The same tree as a map of paths: nothing but definitions.
struct NaiveTree {
    struct Node {
        float log_prob = 0.0F;
        KvSlot slot = kNoSlot;
    };
    std::map<Path, Node> nodes{{{}, {}}};
    std::multiset<KvSlot> freed;
    std::vector<KvSlot> kept;

    [[nodiscard]] static bool starts_with(const Path& path, const Path& head) {
        return path.size() >= head.size() && std::equal(head.begin(), head.end(), path.begin());
    }
    bool follow(const Path& tokens) {
        kept.clear();
        std::map<Path, Node> stay;
        for (const auto& [path, node] : nodes) {
            if (starts_with(path, tokens)) {
                stay[Path(path.begin() + static_cast<std::ptrdiff_t>(tokens.size()), path.end())] =
                    node;
            } else if (node.slot != kNoSlot && starts_with(tokens, path)) {
                kept.push_back(node.slot);  // by length of the path, as the map orders prefixes
            } else if (node.slot != kNoSlot) {
                freed.insert(node.slot);
            }
        }
        nodes = stay;
        const bool prepared = nodes.contains({});
        if (!prepared) nodes[{}] = {};
        nodes[{}].log_prob = 0.0F;
        return prepared;
    }
};

Path path_of(const DraftTree& tree, DraftNodeId id) {
    Path tokens;
    for (const DraftNode* step : tree.path(id)) {
        if (step->id != tree.root().id) tokens.push_back(step->token);
    }
    return tokens;
}

void check_equal(const DraftTree& tree, const NaiveTree& naive) {
    REQUIRE(tree.nodes().size() == naive.nodes.size());
    for (const DraftNode& node : tree.nodes()) {
        const Path path = path_of(tree, node.id);
        const auto found = naive.nodes.find(path);
        REQUIRE(found != naive.nodes.end());
        CHECK(node.log_prob == found->second.log_prob);
        CHECK(node.slot == found->second.slot);
        CHECK(node.position == tree.root().position + static_cast<Position>(path.size()));
        float path_log_prob = 0.0F;
        for (std::size_t i = 1; i <= path.size(); ++i) {
            path_log_prob +=
                naive.nodes.at(Path(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(i)))
                    .log_prob;
        }
        CHECK(node.path_log_prob == doctest::Approx(path_log_prob));
    }
}

msg::Proposal proposal_at(Position position, TokenId token) {
    msg::Proposal proposal{};
    proposal.root_position = position;
    proposal.root_token = token;
    return proposal;
}

void say(msg::Proposal& proposal,
         TokenId token,
         std::int16_t parent,
         float probability,
         msg::Origin origin = msg::Origin::Trunk) {
    proposal.nodes[proposal.count++] = {
        .token = token, .parent = parent, .origin = origin, .log_prob = std::log(probability)};
}

}  // namespace

TEST_CASE("random candidates, slots and verdicts leave what the definition says") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        DraftTree tree{4096};
        NaiveTree naive;
        tree.plant(7, 20);
        KvSlot next_slot = 0;
        std::multiset<KvSlot> freed;
        for (int step = 0; step < 60; ++step) {
            const DraftNode& at = tree.nodes()[random() % tree.nodes().size()];
            const Path path = path_of(tree, at.id);
            const auto kind = random() % 8;
            if (kind < 5) {
                Path longer = path;
                longer.push_back(static_cast<TokenId>(random() % 3));
                const float log_prob = -static_cast<float>(random() % 64) / 16.0F;
                REQUIRE(tree.add(at.id, longer.back(), log_prob, msg::Origin::Trunk));
                naive.nodes[longer].log_prob = log_prob;
            } else if (kind < 7) {
                const DraftNode* parent = tree.find(at.parent);
                const bool in_order = parent == nullptr || parent->slot != kNoSlot;
                if (at.slot != kNoSlot || !in_order) continue;
                naive.nodes[path].slot = next_slot;
                tree.set_slot(at.id, next_slot++);
            } else {
                Path tokens = path;
                if (random() % 3 == 0 || tokens.empty()) tokens.push_back(9);
                const DraftTreeUpdate followed = tree.follow(tokens);
                CHECK(followed.prepared == naive.follow(tokens));
                CHECK(followed.kept == naive.kept);
                for (const DraftTree::Freed& one : tree.take_freed()) freed.insert(one.slot);
                CHECK(freed == naive.freed);
            }
            check_equal(tree, naive);
        }
    }
}

TEST_CASE("a full tree gives up its least probable leaf, and its slot with it") {
    DraftTree tree{4};
    tree.plant(1, 0);
    const DraftNodeId a = *tree.add(tree.root().id, 10, -1.0F, msg::Origin::Trunk);
    const DraftNodeId b = *tree.add(tree.root().id, 11, -3.0F, msg::Origin::RunnerUp);
    const DraftNodeId c = *tree.add(a, 12, -1.0F, msg::Origin::Trunk);
    tree.set_slot(tree.root().id, 5);
    tree.set_slot(b, 6);
    CHECK_FALSE(tree.add(c, 13, -2.0F, msg::Origin::Trunk));  // no better than the worst
    REQUIRE(tree.add(c, 13, -0.5F, msg::Origin::Trunk));
    CHECK(tree.find(b) == nullptr);
    const std::vector<DraftTree::Freed> freed = tree.take_freed();
    REQUIRE(freed.size() == 1);
    CHECK(freed[0].slot == 6);
    CHECK(freed[0].position == 1);
    CHECK(tree.take_freed().empty());
}

TEST_CASE(
    "an exit's candidates become children, k at each row and the trunk's token not among them") {
    DraftTree tree{64};
    const std::vector<TokenId> text{3, 4};
    tree.plant(4, 1);
    const DraftNodeId a = *tree.add(tree.root().id, 10, std::log(0.8F), msg::Origin::Trunk);
    msg::Proposal candidates = proposal_at(1, 4);
    say(candidates, 10, msg::kBelowRoot, 0.4F);  // the row of a
    say(candidates, 10, msg::kBelowRoot, 0.4F,
        msg::Origin::Exit);  // a is also proposed: not counted
    say(candidates, 20, msg::kBelowRoot, 0.3F, msg::Origin::Exit);
    say(candidates, 21, msg::kBelowRoot, 0.2F, msg::Origin::Exit);
    say(candidates, 22, msg::kBelowRoot, 0.1F, msg::Origin::Exit);
    say(candidates, 30, 0, 0.5F,
        msg::Origin::Exit);  // after a, whose trunk token is not drafted yet
    CHECK(tree.merge(candidates, text, ProposalSource::Exit, 2));
    CHECK(tree.child(tree.root().id, 20)->origin == msg::Origin::Exit);
    CHECK(tree.child(tree.root().id, 21) != nullptr);
    CHECK(tree.child(tree.root().id, 22) == nullptr);
    CHECK(tree.child(a, 30) != nullptr);
    // Two opinions, half and half, however often the exit mentions it.
    CHECK(std::exp(tree.find(a)->log_prob) == doctest::Approx((0.8 + 0.4) / 2));
}

TEST_CASE("a proposal for a root that the text has passed still counts where it agrees with it") {
    DraftTree tree{64};
    const std::vector<TokenId> text{3, 4, 5, 6};
    tree.plant(6, 3);
    msg::Proposal trunk = proposal_at(1, 4);
    say(trunk, 5, msg::kBelowRoot, 0.9F);
    say(trunk, 8, msg::kBelowRoot, 0.05F);
    say(trunk, 6, 0, 0.9F);
    say(trunk, 9, 1, 0.9F);  // after what the text is not
    say(trunk, 7, 2, 0.9F);
    CHECK(tree.merge(trunk, text, ProposalSource::Trunk, 0));
    REQUIRE(tree.nodes().size() == 2);
    CHECK(tree.nodes()[1].token == 7);
    CHECK_FALSE(tree.merge(proposal_at(1, 5), text, ProposalSource::Trunk, 0));  // another text
    CHECK_FALSE(tree.merge(proposal_at(9, 4), text, ProposalSource::Trunk, 0));  // a root to come
}

TEST_CASE(
    "what a model proposes is the trunk and runners-up; a source's other candidate shares the "
    "rest") {
    DraftTree tree{64};
    tree.plant(1, 0);
    const DraftNodeId root = tree.root().id;
    (void)tree.add(root, 40, std::log(0.7F), msg::Origin::Lookup);
    const std::vector<Candidate> proposed{{41, std::log(0.6F)}, {42, std::log(0.3F)}};
    tree.expand(root, proposed);
    CHECK(tree.root().expanded);
    CHECK(tree.trunk_child(root)->token == 41);
    CHECK(tree.child(root, 41)->origin == msg::Origin::Trunk);
    CHECK(tree.child(root, 42)->origin == msg::Origin::RunnerUp);
    CHECK(std::exp(tree.child(root, 40)->log_prob) == doctest::Approx(0.1));
}

TEST_CASE("a snapshot holds the most probable nodes, parents first, none after the last place") {
    std::mt19937_64 random{5};
    DraftTree tree{2000};
    tree.plant(1, 10);
    for (int i = 0; i < 1500; ++i) {
        const DraftNode& at = tree.nodes()[random() % tree.nodes().size()];
        (void)tree.add(at.id, static_cast<TokenId>(random() % 50),
                       -static_cast<float>(1 + random() % 40) / 8.0F, msg::Origin::Trunk);
    }
    const Position last = 14;
    const msg::Proposal proposal = tree.snapshot(last);
    REQUIRE(proposal.count == kProposalNodesMax);
    CHECK(proposal.root_position == 10);
    std::vector<float> path_log_prob(proposal.count);
    float least = 0.0F;
    for (std::size_t i = 0; i < proposal.count; ++i) {
        const msg::ProposedNode& node = proposal.nodes[i];
        REQUIRE(node.parent < static_cast<int>(i));
        path_log_prob[i] =
            node.log_prob +
            (node.parent < 0 ? 0.0F : path_log_prob[static_cast<std::size_t>(node.parent)]);
        least = std::min(least, path_log_prob[i]);
    }
    std::size_t better = 0;
    for (const DraftNode& node : tree.nodes()) {
        if (node.id != tree.root().id && node.position <= last &&
            node.path_log_prob > least + 1e-4F)
            ++better;
    }
    CHECK(better < kProposalNodesMax);
    CHECK(tree.snapshot(10).count == 0);
}
