// The order of one request's rows in a batch.
#include "actors/segment/rows/row_order.hpp"

#include <random>
#include <set>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

std::vector<const TreeNode*> all_nodes(const TokenTree& tree) {
    std::vector<const TreeNode*> nodes;
    for (const TreeNode& node : tree.nodes()) nodes.push_back(&node);
    return nodes;
}

}  // namespace

TEST_CASE("observed branches come after all candidates, each whole, and are cut between them") {
    TokenTree tree{TreeRole::Names, 100};
    tree.plant(1, 10);
    const NodeId root = tree.root().id;
    // Row 0 of a window: a chain; below root and chain a branch of two each, the last one observed.
    const NodeId a1 = *tree.grow(root, 2, -1);
    const NodeId b0 = *tree.grow(root, 3, -1);
    const NodeId c0 = *tree.grow(b0, 4, -1, msg::Origin::Lookup, 1);
    const NodeId b1 = *tree.grow(a1, 5, -1);
    const NodeId c1 = *tree.grow(b1, 6, -1, msg::Origin::Lookup, 2);
    const NodeId guess = *tree.grow(root, 7, -2);
    const RowOrder order = observed_last(tree, all_nodes(tree), 64);
    CHECK(order.nodes == std::vector<NodeId>{root, guess, b0, c0, a1, b1, c1});
    CHECK(order.ends == std::vector<std::uint32_t>{2, 4, 7});
    CHECK(yielding_rows(order, 7) == 5);
    CHECK(yielding_rows(order, 1) == 0);
    CHECK(whole_branches(order, 1) == 1);
    CHECK(whole_branches(order, 3) == 2);
    CHECK(whole_branches(order, 6) == 4);
    CHECK(whole_branches(order, 7) == 7);
    const RowOrder small = observed_last(tree, all_nodes(tree), 6);
    CHECK(small.nodes == std::vector<NodeId>{root, guess, b0, c0});
    CHECK(small.ends == std::vector<std::uint32_t>{2, 4});
}

TEST_CASE("what stands below an observed node yields as well, also below one that was sent") {
    TokenTree tree{TreeRole::Names, 100};
    tree.plant(1, 10);
    const NodeId root = tree.root().id;
    const NodeId seen = *tree.grow(root, 2, -1, msg::Origin::Lookup, 1);
    const NodeId below = *tree.grow(seen, 3, -1);
    const NodeId lower = *tree.grow(below, 4, -1);
    const NodeId guess = *tree.grow(root, 5, -2);
    const RowOrder order = observed_last(tree, all_nodes(tree), 64);
    CHECK(order.nodes == std::vector<NodeId>{root, guess, seen, below, lower});
    CHECK(order.ends == std::vector<std::uint32_t>{2, 3, 4, 5});
    CHECK(yielding_rows(order, 5) == 3);
    (void)tree.send(root, 0);
    (void)tree.send(seen, 1);
    std::vector<const TreeNode*> unsent;
    for (const NodeId node : {below, lower, guess}) unsent.push_back(tree.find(node));
    const RowOrder later = observed_last(tree, unsent, 64);
    CHECK(later.nodes == std::vector<NodeId>{guess, below, lower});
    CHECK(yielding_rows(later, 3) == 2);
    // Once the observed node is committed it is the root, and what is below it is as any other.
    REQUIRE(tree.apply(std::vector<NodeId>{}, 2));
    CHECK(observed_last(tree, all_nodes(tree), 64).ends.empty());
}

TEST_CASE("without observed rows the order is the given one, and may be cut anywhere") {
    TokenTree tree{TreeRole::Names, 100};
    tree.plant(1, 10);
    const NodeId a = *tree.grow(tree.root().id, 2, -1);
    const NodeId b = *tree.grow(a, 3, -1);
    const RowOrder order = observed_last(tree, all_nodes(tree), 2);
    CHECK(order.nodes == std::vector<NodeId>{tree.root().id, a});
    CHECK(order.ends.empty());
    CHECK(whole_branches(order, 1) == 1);
    CHECK(yielding_rows(order, 2) == 0);
    CHECK(observed_last(tree, all_nodes(tree), 9).nodes.back() == b);
}

TEST_CASE("in any tree each node stands once and behind its parent, wherever a batch is cut") {
    std::mt19937_64 random{3};
    for (int round = 0; round < 500; ++round) {
        TokenTree tree{TreeRole::Names, 100};
        tree.plant(1, 10);
        for (std::uint64_t i = random() % 60; i > 0; --i) {
            const auto nodes = tree.nodes();
            const NodeId parent = nodes[random() % nodes.size()].id;
            const auto name = static_cast<std::uint8_t>(random() % 3 == 0 ? 1 + random() % 9 : 0);
            (void)tree.grow(parent, static_cast<TokenId>(random() % 50), -1.0F, msg::Origin::Trunk,
                            name);
        }
        const auto most = static_cast<std::uint32_t>(1 + random() % 64);
        const RowOrder order = observed_last(tree, all_nodes(tree), most);
        CHECK(order.nodes.size() <= most);
        CHECK(order.nodes.front() == tree.root().id);
        std::set<NodeId> seen;
        for (const NodeId node : order.nodes) {
            CHECK((node == tree.root().id || seen.contains(tree.find(node)->parent)));
            CHECK(seen.insert(node).second);
        }
        if (most >= tree.nodes().size()) CHECK(seen.size() == tree.nodes().size());
        for (std::uint32_t rows = 0; rows <= order.nodes.size(); ++rows) {
            const std::uint32_t kept = whole_branches(order, rows);
            CHECK(kept <= rows);
            CHECK((kept > 0) == (rows > 0));
        }
    }
}
