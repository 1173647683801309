// The second part of DraftRequest: the messages that it sends, and the phrases in its tree. The
// first part (draft_request.cpp) is how the tree follows text and candidates.
#include <algorithm>

#include "actors/draft/draft_request.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

/// The same candidates below an earlier root, with the tokens committed since then as their
/// ancestors.
msg::Proposal rooted_at(const DraftText& text, Position position, const msg::Proposal& proposal) {
    const auto passed = static_cast<std::uint32_t>(proposal.root_position - position);
    if (passed > kProposalNodesMax) return proposal;
    msg::Proposal whole{};
    whole.root_position = position;
    whole.root_token = text.tokens[static_cast<std::size_t>(position)];
    for (std::uint32_t i = 0; i < passed; ++i) {
        whole.nodes[i] = {.token = text.tokens[static_cast<std::size_t>(position) + i + 1],
                          .parent = static_cast<std::int16_t>(static_cast<std::int32_t>(i) - 1),
                          .origin = msg::Origin::Trunk,
                          .log_prob = 0.0F};
    }
    whole.count = std::min(passed + proposal.count, kProposalNodesMax);
    for (std::uint32_t i = passed; i < whole.count; ++i) {
        whole.nodes[i] = proposal.nodes[i - passed];
        whole.nodes[i].parent =
            static_cast<std::int16_t>(whole.nodes[i].parent + static_cast<std::int32_t>(passed));
    }
    return whole;
}

}  // namespace

void DraftRequest::add_phrases() {
    if (phrases_) phrases_->extend(text->tree, room());
}

void DraftRequest::add_tentative(std::int32_t tokens) {
    if (!phrases_ || growth.streams() || waits.wanted.empty()) return;
    std::vector<DraftNodeId>& wanted = waits.wanted;
    for (const DraftNodeId node : phrases_->plan_pass(text->tree, wanted.front(), tokens)) {
        if (std::find(wanted.begin(), wanted.end(), node) == wanted.end()) wanted.push_back(node);
    }
}

void DraftRequest::end_tentative(bool passed) {
    if (!phrases_) return;
    if (passed) {
        phrases_->passed(text->tree);
    } else {
        text->tree.drop_tentative();
    }
}

msg::Draw DraftRequest::draw(DraftNodeId node, const DrawnSiblings& drawn) const {
    const std::vector<TokenId> path = text->tree.tokens_to(node);
    PACE_CHECK(path.size() <= kGammaMax && drawn.support.size() <= kDrawnSupportMax,
               "a draw below a path, or from a distribution, that is too long");
    msg::Draw draw{};
    draw.route = {.request = id, .attempt = attempt, .epoch = {}};
    draw.root_position = text->tree.root().position;
    draw.root_token = text->tree.root().token;
    draw.depth = static_cast<std::uint32_t>(path.size());
    draw.support = static_cast<std::uint16_t>(drawn.support.size());
    draw.drawn = static_cast<std::uint16_t>(drawn.drawn);
    std::copy(path.begin(), path.end(), draw.path.begin());
    std::copy(drawn.support.begin(), drawn.support.end(), draw.tokens.begin());
    return draw;
}

msg::Proposal DraftRequest::proposal(msg::ProposalState state) const {
    const Position root = text->tree.root().position;
    msg::Proposal proposal = text->tree.snapshot(
        root + std::max(room(), 0), static_cast<std::size_t>(growth.rule().proposed_max()));
    const Position round = growth.round_root().value_or(root);
    if (state == msg::ProposalState::Complete && round < root)
        proposal = rooted_at(*text, round, proposal);
    proposal.route = {.request = id, .attempt = attempt, .epoch = {}};
    proposal.state = state;
    return proposal;
}

}  // namespace paceline
