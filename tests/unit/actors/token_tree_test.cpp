#include "actors/decoding/token_tree.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr std::size_t kMany = 500;

/// The nodes of a tree that were sent, by id: what replicas must agree on.
std::map<std::uint32_t, TreeNode> sent_nodes(const TokenTree& tree) {
    std::map<std::uint32_t, TreeNode> nodes;
    for (TreeNode node : tree.nodes()) {
        if (!node.sent()) continue;
        if (node.id == tree.root().id) {
            node.parent = TokenTree::kNoNode;
            node.origin = msg::Origin::Trunk;  // of committed tokens no segment needs it
        }
        // What proposers believe is the dispatcher's alone.
        node.log_prob = 0.0F;
        node.path_log_prob = 0.0F;
        nodes[node.id.value] = node;
    }
    return nodes;
}

TokenTree planted(TreeRole role) {
    TokenTree tree{role, kMany};
    tree.plant(7, 10);
    return tree;
}

}  // namespace

TEST_CASE("a verdict keeps the subtree under its outcome and drops all else") {
    //   r(7) - a(1) - b(2)
    //               \ c(3) - d(4)
    TokenTree tree = planted(TreeRole::Names);
    const NodeId root = tree.root().id;
    const NodeId a = tree.grow(root, 1).value();
    const NodeId b = tree.grow(a, 2).value();
    const NodeId c = tree.grow(a, 3).value();
    const NodeId d = tree.grow(c, 4).value();
    KvSlot slot = 100;
    for (const NodeId node : {root, a, b, c}) (void)tree.send(node, slot++);

    const std::vector<NodeId> accepted{a};
    const TreeUpdate step = tree.apply(accepted, 3).value();
    REQUIRE(step.committed.size() == 2);
    CHECK(step.committed[0].slot == 100);
    CHECK(step.committed[1].slot == 101);
    REQUIRE(step.dropped.size() == 1);
    CHECK(step.dropped[0].id == b);
    CHECK(tree.root().id == c);
    CHECK(tree.root().position == 12);
    CHECK(tree.root().sent());
    CHECK(tree.nodes().size() == 2);
    CHECK(tree.find(d) != nullptr);
}

TEST_CASE("a miss leaves a new root alone, under a name that was never used") {
    TokenTree tree = planted(TreeRole::Names);
    const NodeId root = tree.root().id;
    const NodeId a = tree.grow(root, 1).value();
    (void)tree.send(root, 0);
    (void)tree.send(a, 1);
    const TreeUpdate step = tree.apply({}, 9).value();
    CHECK(step.committed.size() == 1);
    CHECK(step.dropped.size() == 1);
    CHECK(tree.nodes().size() == 1);
    CHECK(tree.root().token == 9);
    CHECK(tree.root().position == 11);
    CHECK(tree.root().id != root);
    CHECK(tree.root().id != a);
    CHECK_FALSE(tree.root().sent());
}

TEST_CASE("growing the same child twice gives the same node") {
    TokenTree tree = planted(TreeRole::Names);
    const NodeId a = tree.grow(tree.root().id, 1).value();
    CHECK(tree.grow(tree.root().id, 1).value() == a);
    CHECK(tree.nodes().size() == 2);
}

TEST_CASE("a full tree says so instead of growing") {
    TokenTree tree{TreeRole::Names, 3};
    tree.plant(0, 0);
    CHECK(tree.grow(tree.root().id, 1));
    CHECK(tree.grow(tree.root().id, 2));
    CHECK_FALSE(tree.grow(tree.root().id, 3));
}

TEST_CASE("in a full tree the most improbable unsent leaf makes room for a better candidate") {
    //   r - a(-1) - b(-3)        the tree is full with x; a and r were sent
    //     \ x(-2)
    TokenTree tree{TreeRole::Names, 4};
    tree.plant(0, 0);
    const NodeId root = tree.root().id;
    const NodeId a = tree.grow(root, 1, -1.0F).value();
    const NodeId b = tree.grow(a, 2, -3.0F).value();
    const NodeId x = tree.grow(root, 3, -2.0F).value();
    (void)tree.send(root, 0);
    (void)tree.send(a, 1);
    CHECK_FALSE(tree.grow(root, 4, -5.0F));  // worse than all of them
    const NodeId better = tree.grow(root, 4, -3.0F).value();
    CHECK(tree.find(b) == nullptr);  // path_log_prob -4
    CHECK(tree.find(x) != nullptr);
    CHECK_FALSE(tree.grow(better, 5, -0.1F));  // less probable than each of them
    (void)tree.send(x, 2);
    (void)tree.send(better, 3);
    CHECK_FALSE(tree.grow(a, 5, -0.1F));  // what was sent stays
    CHECK(tree.nodes().size() == 4);
}

TEST_CASE("the trunk goes through the most probable child, the youngest among equals") {
    TokenTree tree = planted(TreeRole::Names);
    const NodeId root = tree.root().id;
    const NodeId a = tree.grow(root, 1, -1.0F).value();
    const NodeId b = tree.grow(root, 2, -0.5F, msg::Origin::Exit).value();
    CHECK(tree.trunk_child(root)->id == b);
    const NodeId c = tree.grow(root, 3, -0.5F).value();
    CHECK(tree.trunk_child(root)->id == c);
    // A newer opinion of a known candidate counts, also for what is below it.
    const NodeId d = tree.grow(a, 4, -0.25F).value();
    CHECK(tree.find(d)->path_log_prob == -1.25F);
    CHECK(tree.grow(root, 1, -0.125F, msg::Origin::Lookup).value() == a);
    CHECK(tree.trunk_child(root)->id == a);
    CHECK(tree.find(d)->path_log_prob == -0.375F);
    CHECK(tree.find(a)->origin == msg::Origin::Trunk);  // who had the idea first
}

TEST_CASE("a verdict says whether its outcome was prepared, and by whom") {
    TokenTree tree = planted(TreeRole::Names);
    const NodeId root = tree.root().id;
    const NodeId a = tree.grow(root, 1, -1.0F).value();
    const NodeId b = tree.grow(a, 2, -2.0F, msg::Origin::Exit).value();
    const NodeId c = tree.grow(b, 3, -0.5F).value();
    for (const NodeId node : {root, a}) (void)tree.send(node, static_cast<KvSlot>(node.value));
    const TreeUpdate hit = tree.apply(std::vector<NodeId>{a}, 2).value();
    CHECK(hit.prepared);
    CHECK(tree.root().origin == msg::Origin::Exit);
    CHECK(tree.root().path_log_prob == 0.0F);
    CHECK(tree.find(c)->path_log_prob == -0.5F);
    (void)tree.send(b, 7);
    CHECK_FALSE(tree.apply({}, 9).value().prepared);
}

TEST_CASE("an accepted path that is not in the tree is refused and changes nothing") {
    TokenTree tree = planted(TreeRole::Names);
    const NodeId root = tree.root().id;
    const NodeId a = tree.grow(root, 1).value();
    const NodeId b = tree.grow(a, 2).value();
    (void)tree.send(root, 0);
    (void)tree.send(a, 1);
    const std::vector<TreeNode> before(tree.nodes().begin(), tree.nodes().end());
    for (const std::vector<NodeId>& path :
         {std::vector<NodeId>{b}, {a, b}, {a, a}, {root}, {NodeId{77}}, {TokenTree::kNoNode}}) {
        const Result<TreeUpdate> step = tree.apply(path, 5);
        REQUIRE_FALSE(step);
        CHECK(step.error().code == Errc::Protocol);
        CHECK(std::equal(before.begin(), before.end(), tree.nodes().begin(), tree.nodes().end()));
    }
}

TEST_CASE("a replica refuses rows that contradict its tree") {
    TokenTree tree = planted(TreeRole::Follows);
    const msg::BatchRow root{NodeId{0}, msg::kNoParent, 7, 10, 0};
    REQUIRE(tree.adopt(root).value() == Adoption::Live);
    REQUIRE(tree.adopt({NodeId{1}, 0, 5, 11, 1}).value() == Adoption::Live);
    CHECK_FALSE(tree.adopt({NodeId{1}, 0, 6, 11, 2}));  // the name is in use
    CHECK_FALSE(tree.adopt({NodeId{2}, 0, 6, 12, 2}));  // the position is not the parent's + 1
    CHECK_FALSE(tree.adopt({NodeId{2}, 0, 5, 11, 2}));  // a sibling has this token
    CHECK_FALSE(tree.adopt({NodeId{2}, msg::kNoParent, 7, 10, 2}));  // a second root
    CHECK_FALSE(tree.adopt({NodeId{2}, msg::kNoParent, 8, 11, 2}));  // a root from the future
    CHECK(tree.adopt({NodeId{2}, 99, 5, 11, 2}).value() == Adoption::Stale);
    CHECK(tree.nodes().size() == 2);
}

TEST_CASE("replicas stay equal under any batches and verdicts, however late they see the batches") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
        TokenTree names = planted(TreeRole::Names);
        TokenTree prompt_one = planted(TreeRole::Follows);  // sees each row at once
        TokenTree late_one = planted(TreeRole::Follows);    // sees rows only when it must
        std::deque<msg::BatchRow> on_the_way;
        std::set<std::uint32_t> used;
        KvSlot slot = 0;
        const auto catch_up = [&](std::size_t keep) {
            for (; on_the_way.size() > keep; on_the_way.pop_front()) {
                REQUIRE(late_one.adopt(on_the_way.front()));
            }
        };
        for (int round = 0; round < 60; ++round) {
            for (std::size_t i = below(5); i > 0; --i) {
                const NodeId parent = names.nodes()[below(names.nodes().size())].id;
                names.grow(parent, static_cast<TokenId>(below(3)),
                           -static_cast<float>(below(16)) / 8.0F,
                           static_cast<msg::Origin>(below(msg::kOrigins)));
            }
            for (std::size_t i = 0; i < names.nodes().size(); ++i) {
                const TreeNode node = names.nodes()[i];
                const TreeNode* parent = names.find(node.parent);
                const bool may = i == 0 || parent == nullptr || parent->sent();
                if (node.sent() || !may || (i != 0 && below(3) == 0)) continue;
                const msg::BatchRow row = names.send(node.id, slot++);
                REQUIRE(used.insert(row.node.value).second);
                REQUIRE(prompt_one.adopt(row).value() == Adoption::Live);
                on_the_way.push_back(row);
            }
            REQUIRE(sent_nodes(names) == sent_nodes(prompt_one));
            for (const TreeNode& node : names.nodes()) {
                float sum = 0.0F;  // eighths: exact
                for (const TreeNode* above : names.path(node.id)) sum += above->log_prob;
                REQUIRE(node.path_log_prob == sum);
            }
            // A verdict: the late replica has at least the rows that it is about.
            std::vector<NodeId> accepted;
            const TreeNode* at = &names.root();
            while (below(3) != 0) {
                std::vector<const TreeNode*> children;
                for (const TreeNode& node : names.nodes()) {
                    if (node.parent == at->id && node.sent() && &node != at)
                        children.push_back(&node);
                }
                if (children.empty()) break;
                at = children[below(children.size())];
                accepted.push_back(at->id);
            }
            const NodeId needed = at->id;
            const auto last =
                std::find_if(on_the_way.begin(), on_the_way.end(),
                             [&](const msg::BatchRow& row) { return row.node == needed; });
            if (last != on_the_way.end()) {
                catch_up(static_cast<std::size_t>(on_the_way.end() - last) - 1);
            }
            const auto next = static_cast<TokenId>(below(4));
            const TreeUpdate by_names = names.apply(accepted, next).value();
            const TreeUpdate by_prompt = prompt_one.apply(accepted, next).value();
            const TreeUpdate by_late = late_one.apply(accepted, next).value();
            for (const TreeUpdate& step : {by_prompt, by_late}) {
                REQUIRE(step.committed.size() == by_names.committed.size());
                for (std::size_t i = 0; i < step.committed.size(); ++i) {
                    CHECK(step.committed[i].slot == by_names.committed[i].slot);
                }
            }
            CHECK(by_prompt.dropped.size() == by_names.dropped.size());
            if (below(4) == 0) {
                catch_up(0);
                REQUIRE(sent_nodes(names) == sent_nodes(late_one));
            }
        }
        catch_up(0);
        REQUIRE(sent_nodes(names) == sent_nodes(late_one));
        REQUIRE(names.root().token == late_one.root().token);
        REQUIRE(names.root().position == late_one.root().position);
    }
}

TEST_CASE("a row is observed by the newest name until it is sent, or not any more") {
    TokenTree tree{TreeRole::Names, 8};
    tree.plant(9, 0);
    const NodeId root = tree.root().id;
    const NodeId node = tree.grow(root, 1, -1.0F, msg::Origin::Lookup, 7).value();
    const auto name = [&] { return int{tree.find(node)->observe}; };
    CHECK(name() == 7);
    (void)tree.grow(root, 1, -1.0F);  // by a proposer that does not know of names
    CHECK(name() == 7);
    (void)tree.grow(root, 1, -1.0F, msg::Origin::Lookup, 9);
    CHECK(name() == 9);
    (void)tree.grow(root, 1, -1.0F, msg::Origin::Lookup, 0);
    CHECK(name() == 0);
    (void)tree.grow(root, 1, -1.0F, msg::Origin::Lookup, 3);
    (void)tree.send(root, 0);
    CHECK(int{tree.send(node, 1).observe} == 3);
    (void)tree.grow(root, 1, -1.0F, msg::Origin::Lookup, 4);  // its row goes by the old name
    CHECK(name() == 3);
}
