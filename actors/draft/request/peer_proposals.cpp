#include "actors/draft/request/peer_proposals.hpp"

#include <utility>
#include <vector>

namespace paceline {

bool EarlyProposal::keep(const msg::Proposal& proposal, Position root) {
    if (proposal.root_position <= root) return false;
    kept_ = proposal;
    return true;
}

std::optional<msg::Proposal> EarlyProposal::take_due(Position root) {
    if (!kept_ || kept_->root_position > root) return std::nullopt;
    return std::exchange(kept_, std::nullopt);
}

std::optional<bool> PeerProposals::merge_candidates(const msg::Proposal& candidates,
                                                    DraftText& text) {
    if (early_candidates_.keep(candidates, text.tree.root().position)) return std::nullopt;
    return text.tree.merge(candidates, text.tokens, ProposalSource::Exit, exit_alternatives_);
}

bool PeerProposals::merge_trunk(const msg::Proposal& trunk, DraftText& text) {
    if (early_trunk_.keep(trunk, text.tree.root().position)) return false;
    trunk_.take(trunk);
    // Its sender proposes it: the tree's proposals need not change.
    (void)text.tree.merge(trunk, text.tokens, ProposalSource::Trunk, 0);
    return true;
}

bool PeerProposals::take_branches(DraftText& text) {
    DraftTree& tree = text.tree;
    const Position root = tree.root().position;
    if (!branches_ || branches_->root_position > root) return false;
    // A candidate that exists already is this draft's own trunk. But Correct's proposals from
    // before it got this root may still be under way and arrive one after another.
    const bool more = branches_root_ == root && branches_->root_position < root;
    if (tree.trunk_child(tree.root().id) != nullptr && !more) return false;
    (void)tree.merge(*branches_, text.tokens, ProposalSource::Trunk, 0);
    branches_.reset();
    // Correct has been asked about these: this draft goes on after the last of them, and reads
    // all that is above it in the same pass.
    bool taken = false;
    for (const DraftNode& node : tree.nodes()) {
        if (tree.trunk_child(node.id) == nullptr) continue;
        tree.close(node.id);
        taken = true;
    }
    if (taken) branches_root_ = root;
    return taken;
}

}  // namespace paceline
