#include "actors/decoding/draft_tree.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

constexpr float kLeastLogProb = -100.0F;  // less probable than any candidate that matters

float sane(float log_prob) {
    if (std::isnan(log_prob)) return kLeastLogProb;
    return std::clamp(log_prob, kLeastLogProb, 0.0F);
}

/// The mean of two probabilities: a low estimate of one source cannot rule out the other's
/// candidate.
float pooled(float one, float other) {
    const float high = std::max(one, other);
    return sane(high + std::log(0.5F * (1.0F + std::exp(std::min(one, other) - high))));
}

}  // namespace

void DraftTree::plant(TokenId token, Position position) {
    for (const DraftNode& node : nodes_) drop(node);
    nodes_.clear();
    nodes_.push_back({.id = next_id_++, .token = token, .position = position});
}

DraftNode* DraftTree::get(DraftNodeId id) {
    const std::size_t index = index_of(id);
    return index == nodes_.size() ? nullptr : &nodes_[index];
}

std::vector<DraftNodeId> DraftTree::trunk() const {
    std::vector<DraftNodeId> ids;
    for (const DraftNode* at = &root(); at != nullptr; at = trunk_child(at->id)) {
        ids.push_back(at->id);
    }
    return ids;
}

std::vector<TokenId> DraftTree::tokens_to(DraftNodeId node) const {
    std::vector<TokenId> tokens;
    for (const DraftNode* step : path(node)) {
        if (step->id != root().id) tokens.push_back(step->token);
    }
    return tokens;
}

void DraftTree::drop(const DraftNode& node) {
    if (node.slot != kNoSlot) freed_.push_back({node.position, node.slot});
}

std::optional<DraftNodeId> DraftTree::add(DraftNodeId parent,
                                          TokenId token,
                                          float log_prob,
                                          msg::Origin origin) {
    const DraftNode* above = find(parent);
    PACE_CHECK(above != nullptr, "a candidate after a node that is not in the tree");
    log_prob = sane(log_prob);
    if (const DraftNode* known = child(parent, token); known != nullptr) {
        const DraftNodeId id = known->id;
        set_log_prob(index_of(id), log_prob);
        return id;
    }
    const float path_log_prob = above->path_log_prob + log_prob;
    const Position position = above->position + 1;
    if (full()) {
        const std::optional<DraftNode> gone =
            make_room(path_log_prob, [](const DraftNode&) { return true; });
        if (!gone) return std::nullopt;
        drop(*gone);
    }
    nodes_.push_back({.id = next_id_++,
                      .parent = parent,
                      .token = token,
                      .position = position,
                      .log_prob = log_prob,
                      .path_log_prob = path_log_prob,
                      .origin = origin});
    return nodes_.back().id;
}

void DraftTree::expand(DraftNodeId parent, std::span<const Candidate> candidates) {
    float proposed = 0.0F;
    for (const Candidate& candidate : candidates) proposed += std::exp(sane(candidate.log_prob));
    const float left_over = sane(std::log(std::max(1.0F - proposed, 0.0F)));
    std::vector<DraftNodeId> unproposed;
    for (const DraftNode& node : nodes_) {
        const bool is_proposed =
            std::any_of(candidates.begin(), candidates.end(),
                        [&](const Candidate& candidate) { return candidate.token == node.token; });
        if (node.parent == parent && node.origin != msg::Origin::Exit && !is_proposed) {
            unproposed.push_back(node.id);
        }
    }
    for (const DraftNodeId id : unproposed) {
        const std::size_t index = index_of(id);
        set_log_prob(index, std::min(nodes_[index].log_prob, left_over));
    }
    msg::Origin origin = msg::Origin::Trunk;
    for (const Candidate& candidate : candidates) {
        // An exit proposed it first: take the mean.
        const DraftNode* known = child(parent, candidate.token);
        const bool pool = known != nullptr && known->origin == msg::Origin::Exit;
        if (known != nullptr && known->tentative) {
            DraftNode& confirmed = *get(known->id);
            confirmed.tentative = false;
            confirmed.origin = origin;
        }
        const float log_prob = sane(candidate.log_prob);
        (void)add(parent, candidate.token, pool ? pooled(known->log_prob, log_prob) : log_prob,
                  origin);
        origin = msg::Origin::RunnerUp;
    }
    close(parent);
}

std::optional<DraftNodeId> DraftTree::add_tentative(DraftNodeId parent,
                                                    TokenId token,
                                                    float log_prob) {
    if (const DraftNode* known = child(parent, token); known != nullptr) return known->id;
    const std::optional<DraftNodeId> added = add(parent, token, log_prob, msg::Origin::Trunk);
    if (added) get(*added)->tentative = true;
    return added;
}

/// By index of the nodes: tentative, and what is below one.
std::vector<bool> DraftTree::below_tentative() const {
    std::vector<bool> below(nodes_.size(), false);
    for (std::size_t i = 1; i < nodes_.size(); ++i)
        below[i] = nodes_[i].tentative || below[index_of(nodes_[i].parent)];
    return below;
}

void DraftTree::drop_tentative() {
    const std::vector<bool> below = below_tentative();
    std::vector<DraftNode> kept;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (below[i]) {
            drop(nodes_[i]);
        } else {
            kept.push_back(nodes_[i]);
        }
    }
    nodes_ = std::move(kept);
}

void DraftTree::close(DraftNodeId id) {
    if (DraftNode* node = get(id); node != nullptr) node->expanded = true;
}

void DraftTree::reopen(DraftNodeId id) {
    if (DraftNode* node = get(id); node != nullptr) node->expanded = false;
}

void DraftTree::mark_drawn(DraftNodeId id) {
    if (DraftNode* node = get(id); node != nullptr) node->drawn = true;
}

void DraftTree::observe(DraftNodeId id, std::uint8_t name) {
    if (DraftNode* node = get(id); node != nullptr) node->observe = name;
}

void DraftTree::set_slot(DraftNodeId id, KvSlot slot) {
    DraftNode* node = get(id);
    PACE_CHECK(node != nullptr && node->slot == kNoSlot,
               "a slot for a candidate that has none to get");
    const DraftNode* parent = node->parent == kNoDraftNode ? nullptr : find(node->parent);
    PACE_CHECK(parent == nullptr || parent->slot != kNoSlot,
               "a candidate in the cache before its parent");
    node->slot = slot;
}

void DraftTree::drop_slots() {
    for (DraftNode& node : nodes_) {
        drop(node);
        node.slot = kNoSlot;
    }
}

/// The children of a committed node, by the token that followed it.
void DraftTree::judge(DraftNodeId parent, TokenId token, std::vector<JudgedNode>& judged) const {
    const auto nodes = this->nodes();
    for (const DraftNode& node : nodes.subspan(1)) {
        if (node.parent == parent && !node.tentative)
            judged.push_back({node.origin, node.log_prob, node.token == token});
    }
}

DraftTreeUpdate DraftTree::follow(std::span<const TokenId> tokens) {
    PACE_CHECK(!tokens.empty(), "a text that goes on with nothing");
    DraftTreeUpdate followed;
    const DraftNode* at = &root();
    for (const TokenId token : tokens) {
        if (at == nullptr) break;
        followed.committed.push_back(at->id);
        judge(at->id, token, followed.judged);
        at = child(at->id, token);
    }
    for (const DraftNodeId id : followed.committed) {
        DraftNode& node = *get(id);
        if (node.slot == kNoSlot) break;
        followed.kept.push_back(std::exchange(node.slot, kNoSlot));
    }
    followed.prepared = at != nullptr;
    const Position position = root().position + static_cast<Position>(tokens.size());
    if (at == nullptr) {
        plant(tokens.back(), position);
        return followed;
    }
    DraftNode top = *at;
    top.parent = kNoDraftNode;
    top.tentative = false;
    keep_below(top, [this](const DraftNode& node) { drop(node); });
    update_path_log_probs(1);
    return followed;
}

bool DraftTree::merge(const msg::Proposal& proposal,
                      std::span<const TokenId> text,
                      ProposalSource source,
                      std::int32_t alternatives) {
    const Position top = root().position;
    const Position from = proposal.root_position;
    if (from < 0 || from > top || text[static_cast<std::size_t>(from)] != proposal.root_token) {
        return false;
    }
    // Where each node of the proposal stands: in the text, in the tree, or nowhere.
    struct Place {
        Position committed = -1;
        DraftNodeId candidate = kNoDraftNode;
    };
    const auto place_at = [&](Position position) {
        return position == top ? Place{.candidate = root().id} : Place{.committed = position};
    };
    std::array<Place, kProposalNodesMax> places{};
    std::array<std::int32_t, kProposalNodesMax + 1> proposed{};
    std::vector<DraftNodeId> met;
    bool changed = false;
    for (std::uint32_t i = 0; i < std::min(proposal.count, kProposalNodesMax); ++i) {
        const msg::ProposedNode& said = proposal.nodes[i];
        if (said.parent >= static_cast<std::int32_t>(i)) continue;
        const Place above =
            said.parent < 0 ? place_at(from) : places[static_cast<std::size_t>(said.parent)];
        if (above.committed >= 0) {
            const Position next = above.committed + 1;
            if (text[static_cast<std::size_t>(next)] == said.token) places[i] = place_at(next);
            continue;
        }
        if (above.candidate == kNoDraftNode || find(above.candidate) == nullptr) continue;
        const DraftNode* known = child(above.candidate, said.token);
        if (known == nullptr && source == ProposalSource::Exit &&
            said.origin == msg::Origin::Exit) {
            std::int32_t& count = proposed[static_cast<std::size_t>(said.parent + 1)];
            if (count >= alternatives) continue;
            ++count;
        }
        // An exit's candidate may also be the next row of the batch: count its estimate once.
        const bool counted =
            known != nullptr && std::find(met.begin(), met.end(), known->id) != met.end();
        if (!counted) merge_node(said, above.candidate, source);
        known = child(above.candidate, said.token);
        if (known == nullptr) continue;
        places[i].candidate = known->id;
        met.push_back(known->id);
        changed = true;
    }
    return changed;
}

void DraftTree::merge_node(const msg::ProposedNode& said,
                           DraftNodeId parent,
                           ProposalSource source) {
    float log_prob = sane(said.log_prob);
    const DraftNode* known = child(parent, said.token);
    if (known != nullptr && source == ProposalSource::Exit)
        log_prob = pooled(known->log_prob, log_prob);
    (void)add(parent, said.token, log_prob, said.origin);
}

msg::Proposal DraftTree::snapshot(Position last, std::size_t count) const {
    std::vector<const DraftNode*> best;
    const std::vector<bool> tentative = below_tentative();
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
        if (nodes_[i].position <= last && !tentative[i]) best.push_back(&nodes_[i]);
    }
    const auto before = [](const DraftNode* a, const DraftNode* b) {
        return a->path_log_prob > b->path_log_prob ||
               (a->path_log_prob == b->path_log_prob && a->id < b->id);
    };
    std::sort(best.begin(), best.end(), before);
    count = std::min<std::size_t>(count, kProposalNodesMax);
    if (best.size() > count) best.resize(count);
    std::sort(best.begin(), best.end(),
              [](const DraftNode* a, const DraftNode* b) { return a->id < b->id; });
    msg::Proposal proposal{};
    proposal.root_position = root().position;
    proposal.root_token = root().token;
    proposal.count = static_cast<std::uint32_t>(best.size());
    for (std::size_t i = 0; i < best.size(); ++i) {
        const auto above =
            std::find_if(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(i),
                         [&](const DraftNode* n) { return n->id == best[i]->parent; });
        const bool below_root = best[i]->parent == root().id;
        proposal.nodes[i] = {.token = best[i]->token,
                             .parent = below_root ? msg::kBelowRoot
                                                  : static_cast<std::int16_t>(above - best.begin()),
                             .origin = best[i]->origin,
                             .observe = best[i]->observe,
                             .log_prob = best[i]->log_prob};
    }
    return proposal;
}

JudgedTrunk judged_trunk(const DraftTree& tree, const msg::Verdict& verdict) {
    JudgedTrunk found;
    const DraftNode* at = &tree.root();
    for (std::uint32_t depth = 0; depth < verdict.depth; ++depth) {
        at = tree.trunk_child(at->id);
        if (at == nullptr || at->origin != msg::Origin::Trunk) break;
        ++found.drafted;
        // The last token is the target's own.
        const bool stands = found.accepted == static_cast<int>(depth) &&
                            depth + 1 < verdict.count && verdict.tokens[depth] == at->token;
        found.accepted += stands ? 1 : 0;
    }
    return found;
}

}  // namespace paceline
