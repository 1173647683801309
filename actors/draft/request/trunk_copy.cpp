#include "actors/draft/request/trunk_copy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace paceline {

/// The proposal's root and trunk, as tokens.
void TrunkCopy::take(const msg::Proposal& trunk) {
    root_ = trunk.root_position;
    tokens_ = {trunk.root_token};
    for (std::int32_t at = msg::kBelowRoot;;) {
        std::int32_t best = -1;
        for (std::uint32_t i = 0; i < trunk.count; ++i) {
            const msg::ProposedNode& node = trunk.nodes[i];
            if (node.parent != at) continue;
            if (best < 0 || node.log_prob >= trunk.nodes[static_cast<std::size_t>(best)].log_prob)
                best = static_cast<std::int32_t>(i);
        }
        if (best < 0) return;
        tokens_.push_back(trunk.nodes[static_cast<std::size_t>(best)].token);
        at = best;
    }
}

std::optional<DraftNodeId> TrunkCopy::node_at(const DraftText& text, Position position) const {
    const DraftNode* at = &text.tree.root();
    const Position root = at->position;
    if (position < root || tokens_.empty() || root_ > root || !is_text_at(text, root) ||
        position - root_ >= static_cast<Position>(tokens_.size())) {
        return std::nullopt;
    }
    for (Position p = root + 1; p <= position && at != nullptr; ++p) {
        at = text.tree.child(at->id, tokens_[static_cast<std::size_t>(p - root_)]);
    }
    if (at == nullptr) return std::nullopt;
    return at->id;
}

bool TrunkCopy::is_text_at(const DraftText& text, Position position) const {
    if (position < root_ || position > text.tree.root().position) return false;
    const auto count = static_cast<std::size_t>(position - root_) + 1;
    return count <= tokens_.size() &&
           std::equal(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(count),
                      text.tokens.begin() + root_);
}

}  // namespace paceline
