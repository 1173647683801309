// Candidates on their way into the token tree: merge_proposal(), bind_draw(), FutureCandidates; and
// the rows of theirs that are computed ahead (AheadRows).
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "actors/segment/scheduling/ahead_rows.hpp"
#include "actors/segment/scheduling/candidate_merge.hpp"
#include "actors/segment/scheduling/unsent_rows.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

/// The text 1 2 3: its root is the 3 at position 2.
RequestState request_of_three() {
    Request request;
    request.text = {1, 2, 3};
    request.end_tokens = {9};
    request.max_tokens = 20;
    request.context = 40;
    return RequestState{RequestId{1}, Attempt{1}, BeginPayload{request}, TreeRole::Names};
}

msg::Proposal proposal_below(Position root, TokenId token) {
    msg::Proposal made{};
    made.root_position = root;
    made.root_token = token;
    made.state = msg::ProposalState::Complete;
    return made;
}

std::int16_t add_node(msg::Proposal& proposal,
                      std::int16_t parent,
                      TokenId token,
                      msg::Origin origin = msg::Origin::Trunk) {
    proposal.nodes[proposal.count] = {token, parent, origin, 0, -0.1F};
    return static_cast<std::int16_t>(proposal.count++);
}

}  // namespace

TEST_CASE("of a proposal for an earlier root only what follows the text since is merged") {
    RequestState state = request_of_three();
    msg::Proposal made = proposal_below(1, 2);
    (void)add_node(made, msg::kBelowRoot, 7);
    const std::int16_t root = add_node(made, msg::kBelowRoot, 3, msg::Origin::Lookup);
    (void)add_node(made, root, 5);
    const MergedProposal merged = merge_proposal(state, made, ProposalSender::Draft);
    CHECK(merged.on_text);
    CHECK(merged.used);
    CHECK(merged.root == msg::Origin::Lookup);
    const TokenTree& tree = state.tree();
    CHECK(tree.nodes().size() == 2);
    CHECK(tree.child(tree.root().id, 5) != nullptr);
}

TEST_CASE("a proposal whose root or continuation is not the text adds nothing") {
    RequestState state = request_of_three();
    const MergedProposal other = merge_proposal(state, proposal_below(1, 6), ProposalSender::Draft);
    CHECK_FALSE(other.on_text);
    CHECK_FALSE(other.used);
    msg::Proposal passed = proposal_below(1, 2);
    (void)add_node(passed, msg::kBelowRoot, 7);
    const MergedProposal merged = merge_proposal(state, passed, ProposalSender::Draft);
    CHECK(merged.on_text);
    CHECK_FALSE(merged.used);
    CHECK(state.tree().nodes().size() == 1);
}

TEST_CASE("nothing grows below a candidate that would end the answer") {
    RequestState state = request_of_three();
    msg::Proposal made = proposal_below(2, 3);
    const std::int16_t end = add_node(made, msg::kBelowRoot, 9);
    (void)add_node(made, end, 5);
    const MergedProposal merged = merge_proposal(state, made, ProposalSender::Other);
    CHECK(merged.used);
    CHECK(merged.root == std::nullopt);  // the proposal's own root
    CHECK(state.tree().nodes().size() == 2);
    const RowOrder order = unsent_rows(state, {.shape = BatchShape::Tree});
    CHECK(order.nodes == std::vector<NodeId>{state.tree().root().id});
}

TEST_CASE("the newest proposal of each sender for a future root is kept and taken once") {
    FutureCandidates future;
    msg::Proposal first = proposal_below(5, 1);
    future.keep(first, ProposalSender::Draft);
    msg::Proposal newer = proposal_below(5, 1);
    newer.state = msg::ProposalState::Growing;
    (void)add_node(newer, msg::kBelowRoot, 4);
    future.keep(newer, ProposalSender::Draft);
    CHECK_FALSE(future.take_proposal(ProposalSender::Draft, 4));
    CHECK_FALSE(future.take_proposal(ProposalSender::Other, 5));
    const auto taken = future.take_proposal(ProposalSender::Draft, 5);
    REQUIRE(taken);
    CHECK(taken->count == 1);
    CHECK(taken->state == msg::ProposalState::Complete);  // of the first: it never goes back
    CHECK_FALSE(future.take_proposal(ProposalSender::Draft, 5));
}

TEST_CASE("the first draws for future roots are kept, and taken in their order when these come") {
    FutureCandidates future;
    const auto draw = [](Position root, std::uint32_t depth) {
        auto made = std::make_unique<msg::Draw>();
        made->root_position = root;
        made->depth = depth;
        return made;
    };
    future.keep(*draw(4, 0));
    future.keep(*draw(6, 1));
    for (std::uint32_t i = 0; i < FutureCandidates::kDrawsMax; ++i) future.keep(*draw(4, 2 + i));
    CHECK(future.take_draws(3).empty());
    const std::vector<msg::Draw> due = future.take_draws(4);
    REQUIRE(due.size() == FutureCandidates::kDrawsMax - 1);
    CHECK(due.front().depth == 0);
    CHECK(due.back().depth == FutureCandidates::kDrawsMax - 1);
    CHECK(future.take_draws(6).size() == 1);
    CHECK(future.take_draws(6).empty());
}

TEST_CASE("a row computed ahead keeps its slot until a batch takes it or all others are freed") {
    RequestState state = request_of_three();
    TokenTree& tree = state.tree();
    const NodeId first = *tree.grow(tree.root().id, 5);
    const NodeId second = *tree.grow(tree.root().id, 6);
    KvPages pages{320};
    RequestSlots slots = RequestSlots::on_demand(pages, 40);
    AheadRows ahead;
    const auto slot = ahead.allocate(*tree.find(first), slots, {});
    REQUIRE(slot);
    REQUIRE(ahead.allocate(*tree.find(second), slots, {}));
    CHECK(slots.in_use() == 2);
    ahead.computed(first, 7, 3);
    ahead.computed(tree.root().id, 7, 4);  // it has no row
    CHECK_FALSE(ahead.take(tree.root().id));
    const auto row = ahead.take(first);
    REQUIRE(row);
    CHECK(row->slot == *slot);
    CHECK(row->start == 7);
    CHECK(row->tensor_row == 3);
    CHECK_FALSE(ahead.take(first));
    ahead.free_all(slots);
    CHECK(slots.in_use() == 1);  // the taken one belongs to the batch
    CHECK(slots.uses(*slot));
}
