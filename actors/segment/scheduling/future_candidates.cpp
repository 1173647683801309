#include "actors/segment/scheduling/future_candidates.hpp"

#include <algorithm>
#include <utility>

namespace paceline {

void FutureCandidates::keep(const msg::Proposal& proposal, ProposalSender sender) {
    std::optional<msg::Proposal>& kept = proposals_[static_cast<std::size_t>(sender)];
    const bool same_root = kept && kept->root_position == proposal.root_position;
    const msg::ProposalState before = same_root ? kept->state : proposal.state;
    kept = proposal;
    kept->state = std::max(before, proposal.state);
}

void FutureCandidates::keep(const msg::Draw& draw) {
    if (draws_.size() < kDrawsMax) draws_.push_back(draw);
}

std::optional<msg::Proposal> FutureCandidates::take_proposal(ProposalSender sender, Position root) {
    std::optional<msg::Proposal>& kept = proposals_[static_cast<std::size_t>(sender)];
    if (!kept || kept->root_position > root) return std::nullopt;
    return std::exchange(kept, std::nullopt);
}

std::vector<msg::Draw> FutureCandidates::take_draws(Position root) {
    const auto future = [root](const msg::Draw& draw) { return draw.root_position > root; };
    const auto taken = std::stable_partition(draws_.begin(), draws_.end(), future);
    std::vector<msg::Draw> due{taken, draws_.end()};
    draws_.erase(taken, draws_.end());
    return due;
}

}  // namespace paceline
