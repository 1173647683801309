#include "actors/draft/request/peer_proposals.hpp"

#include <optional>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

DraftText text_with(std::vector<TokenId> tokens) {
    Request request;
    request.text = std::move(tokens);
    request.context = 100;
    return DraftText{request};
}

/// One path below `root`, whose token is `token`.
msg::Proposal path_below(Position root,
                         TokenId token,
                         const std::vector<TokenId>& path,
                         msg::Origin origin = msg::Origin::Trunk) {
    msg::Proposal proposal{};
    proposal.root_position = root;
    proposal.root_token = token;
    for (const TokenId next : path) {
        proposal.nodes[proposal.count] = {
            .token = next,
            .parent = static_cast<std::int16_t>(static_cast<int>(proposal.count) - 1),
            .origin = origin,
            .log_prob = -0.1F};
        ++proposal.count;
    }
    return proposal;
}

std::vector<TokenId> trunk_tokens(const DraftText& text) {
    return text.tree.tokens_to(text.tree.trunk().back());
}

}  // namespace

TEST_CASE("an exit's candidates for a future root are merged when the text has reached it") {
    DraftText text = text_with({1, 2});
    PeerProposals peers{2};
    const auto candidates = [](Position root, TokenId token, TokenId next) {
        return path_below(root, token, {next}, msg::Origin::Exit);
    };
    CHECK(peers.merge_candidates(candidates(1, 2, 9), text) == true);
    CHECK(trunk_tokens(text) == std::vector<TokenId>{9});

    CHECK(peers.merge_candidates(candidates(3, 4, 7), text) == std::nullopt);
    CHECK(peers.merge_candidates(candidates(3, 4, 8), text) == std::nullopt);  // the newest counts
    CHECK(peers.take_due_candidates(2) == std::nullopt);
    (void)text.follow(std::vector<TokenId>{3, 4});
    const std::optional<msg::Proposal> due = peers.take_due_candidates(3);
    REQUIRE(due);
    CHECK(peers.take_due_candidates(3) == std::nullopt);
    CHECK(peers.merge_candidates(*due, text) == true);
    CHECK(trunk_tokens(text) == std::vector<TokenId>{8});
}

TEST_CASE("Correct's branches are taken over once the new root has no candidate") {
    DraftText text = text_with({1});
    PeerProposals peers{2};
    CHECK_FALSE(peers.take_branches(text));  // there are none
    const DraftNodeId own =
        text.tree.add(text.tree.root().id, 2, -0.1F, msg::Origin::Trunk).value();
    peers.keep_branches(path_below(0, 1, {3, 4, 5}));
    CHECK_FALSE(peers.take_branches(text));
    CHECK(trunk_tokens(text) == std::vector<TokenId>{2});

    (void)text.follow(std::vector<TokenId>{3});  // not this draft's candidate
    CHECK(text.tree.find(own) == nullptr);
    CHECK(peers.take_branches(text));
    CHECK(trunk_tokens(text) == std::vector<TokenId>{4, 5});
    // It goes on after the last of them alone.
    for (const DraftNode& node : text.tree.nodes()) CHECK(node.expanded == (node.token != 5));

    // More of what Correct said of the root before may be under way.
    peers.keep_branches(path_below(0, 1, {3, 6}));
    CHECK(peers.take_branches(text));
    CHECK(text.tree.child(text.tree.root().id, 6) != nullptr);
    peers.keep_branches(path_below(1, 3, {7}));
    CHECK_FALSE(peers.take_branches(text));
}

TEST_CASE("positions of the last trunk are nodes of the tree or committed text") {
    DraftText text = text_with({1, 2});
    PeerProposals peers{2};
    const TrunkCopy& trunk = peers.trunk();
    CHECK_FALSE(trunk.is_text_at(text, 1));
    CHECK_FALSE(trunk.node_at(text, 1));
    msg::Proposal told = path_below(1, 2, {3, 4});
    told.nodes[told.count++] = {.token = 9,
                                .parent = msg::kBelowRoot,
                                .origin = msg::Origin::RunnerUp,
                                .log_prob = -3.0F};  // not of the trunk
    REQUIRE(peers.merge_trunk(told, text));
    CHECK(trunk.is_text_at(text, 1));
    CHECK_FALSE(trunk.is_text_at(text, 2));
    CHECK(trunk.node_at(text, 1) == text.tree.root().id);
    REQUIRE(trunk.node_at(text, 3));
    CHECK(text.tree.find(*trunk.node_at(text, 3))->token == 4);
    CHECK_FALSE(trunk.node_at(text, 4));

    (void)text.follow(std::vector<TokenId>{3});
    CHECK(trunk.is_text_at(text, 2));
    CHECK_FALSE(trunk.node_at(text, 1));
    CHECK(trunk.node_at(text, 2) == text.tree.root().id);
    (void)text.follow(std::vector<TokenId>{5});  // not the trunk's
    CHECK_FALSE(trunk.is_text_at(text, 3));
    CHECK_FALSE(trunk.node_at(text, 3));
}
