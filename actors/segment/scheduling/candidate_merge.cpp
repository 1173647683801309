#include "actors/segment/scheduling/candidate_merge.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "actors/segment/scheduling/unsent_rows.hpp"

namespace paceline {
namespace {

// Less probable than anything: keeps sums along a path finite.
constexpr float kLogProbMin = -1000.0F;

/// The node of `proposal` where the text that was committed after its root ends (kBelowRoot: no
/// text was). Nothing if the text went on in another way.
std::optional<std::int16_t> follow_text(const msg::Proposal& proposal,
                                        std::span<const TokenId> text) {
    std::int16_t at = msg::kBelowRoot;
    std::size_t i = 0;
    for (const TokenId token : text) {
        while (i < proposal.count &&
               (proposal.nodes[i].parent != at || proposal.nodes[i].token != token)) {
            ++i;
        }
        if (i == proposal.count) return std::nullopt;
        at = static_cast<std::int16_t>(i++);
    }
    return at;
}

/// Adds the proposal's nodes below `top` to the tree, below the root.
void grow(RequestState& state,
          const msg::Proposal& proposal,
          std::int16_t top,
          ProposalSender sender) {
    TokenTree& tree = state.tree();
    std::array<NodeId, kProposalNodesMax> ids{};
    ids.fill(TokenTree::kNoNode);
    for (std::uint32_t i = 0; i < proposal.count; ++i) {
        const msg::ProposedNode& node = proposal.nodes[i];
        if (node.parent < top) continue;
        const NodeId above =
            node.parent == top ? tree.root().id : ids[static_cast<std::size_t>(node.parent)];
        // Its parent found no room, was useless, or had to make room itself.
        const TreeNode* below = tree.find(above);
        if (below == nullptr || !worth_a_row(state, *below)) continue;
        const float log_prob = std::clamp(node.log_prob, kLogProbMin, 0.0F);
        const bool names = sender == ProposalSender::Draft || node.observe != 0;
        ids[i] = tree.grow(above, node.token, log_prob, node.origin,
                           names ? std::optional{node.observe} : std::nullopt)
                     .value_or(TokenTree::kNoNode);
    }
}

}  // namespace

MergedProposal merge_proposal(RequestState& state,
                              const msg::Proposal& proposal,
                              ProposalSender sender) {
    const std::span<const TokenId> text = state.text();
    const auto at = static_cast<std::size_t>(proposal.root_position);
    if (state.over() || text[at] != proposal.root_token) return {};
    MergedProposal merged{.on_text = true};
    const std::optional<std::int16_t> top = follow_text(proposal, text.subspan(at + 1));
    if (!top) return merged;
    merged.used = true;
    if (*top != msg::kBelowRoot)
        merged.root = proposal.nodes[static_cast<std::size_t>(*top)].origin;
    grow(state, proposal, *top, sender);
    return merged;
}

void bind_draw(RequestState& state, const msg::Draw& draw) {
    TokenTree& tree = state.tree();
    const std::span<const TokenId> text = state.text();
    const auto at = static_cast<std::size_t>(draw.root_position);
    const std::span<const TokenId> path = std::span{draw.path}.first(draw.depth);
    const std::span<const TokenId> passed = text.subspan(at + 1);  // since that root
    if (text[at] != draw.root_token || path.size() < passed.size() ||
        !std::equal(passed.begin(), passed.end(), path.begin())) {
        return;
    }
    const TreeNode* node = &tree.root();
    for (const TokenId token : path.subspan(passed.size())) {
        node = tree.child(node->id, token);
        if (node == nullptr) return;
    }
    const auto support = std::span{draw.tokens}.first(draw.support);
    (void)tree.take_drawn(node->id,
                          std::make_shared<const DrawnSiblings>(DrawnSiblings{
                              .support = {support.begin(), support.end()}, .drawn = draw.drawn}));
}

}  // namespace paceline
