// CandidateTree: what the tree of the dispatcher and that of a draft have in common: nodes below a
// root with the probability of each path, lookup, and the two ways in which nodes leave.
//
// Node has: id, parent, token, position, log_prob (after its parent), path_log_prob (of the whole
// path below the root; log), and Node::kNone, the id of no node. Used by inheritance; TokenTree and
// DraftTree add what they know of batches, replicas and proposals.
// Pure; not thread-safe. Invariants: the root is nodes().front(), with path_log_prob 0; a parent
// stands before its children; siblings have different tokens; a node's path_log_prob is at most its
// parent's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ipc/base/check.hpp"
#include "ipc/base/ids.hpp"

namespace paceline {

template <typename Node>
class CandidateTree {
public:
    using Id = decltype(Node::id);

    [[nodiscard]] const Node& root() const { return nodes_.front(); }
    [[nodiscard]] std::span<const Node> nodes() const { return nodes_; }
    [[nodiscard]] const Node* find(Id id) const {
        if (id == Node::kNone) return nullptr;
        const std::size_t index = index_of(id);
        return index < nodes_.size() ? &nodes_[index] : nullptr;
    }
    [[nodiscard]] const Node* child(Id parent, TokenId token) const {
        if (parent == Node::kNone) return nullptr;
        // The root is a child of no node, even if it remembers the id of what it was below.
        for (std::size_t i = 1; i < nodes_.size(); ++i) {
            if (nodes_[i].parent == parent && nodes_[i].token == token) return &nodes_[i];
        }
        return nullptr;
    }
    /// The most probable child, the youngest among equals: the trunk goes through it. nullptr for a
    /// leaf.
    [[nodiscard]] const Node* trunk_child(Id parent) const {
        if (parent == Node::kNone) return nullptr;
        const Node* best = nullptr;
        for (std::size_t i = 1; i < nodes_.size(); ++i) {
            if (nodes_[i].parent != parent) continue;
            if (best == nullptr || nodes_[i].log_prob >= best->log_prob) best = &nodes_[i];
        }
        return best;
    }
    /// From the root (included) down to `id` (included), which must be in the tree.
    [[nodiscard]] std::vector<const Node*> path(Id id) const {
        std::vector<const Node*> nodes;
        for (std::size_t i = index_of(id);; i = index_of(nodes_[i].parent)) {
            PACE_CHECK(i < nodes_.size(), "the path of a node that is not in the tree");
            nodes.push_back(&nodes_[i]);
            if (i == 0) break;
        }
        std::reverse(nodes.begin(), nodes.end());
        return nodes;
    }

protected:
    /// `sorted`: ids ascend from node to node, so lookup is a binary search.
    CandidateTree(bool sorted, std::size_t nodes_max) : sorted_{sorted}, nodes_max_{nodes_max} {}

    /// nodes_.size(): it is not there.
    [[nodiscard]] std::size_t index_of(Id id) const {
        const auto found =
            sorted_ ? std::lower_bound(nodes_.begin(), nodes_.end(), id,
                                       [](const Node& node, Id wanted) { return node.id < wanted; })
                    : std::find_if(nodes_.begin(), nodes_.end(),
                                   [id](const Node& node) { return node.id == id; });
        const bool there = found != nodes_.end() && found->id == id;
        return there ? static_cast<std::size_t>(found - nodes_.begin()) : nodes_.size();
    }
    [[nodiscard]] bool full() const { return nodes_.size() >= nodes_max_; }

    /// After a change of probability at `first`, or of the root.
    void update_path_log_probs(std::size_t first) {
        nodes_.front().log_prob = 0.0F;
        nodes_.front().path_log_prob = 0.0F;
        for (std::size_t i = std::max<std::size_t>(first, 1); i < nodes_.size(); ++i) {
            nodes_[i].path_log_prob =
                nodes_[index_of(nodes_[i].parent)].path_log_prob + nodes_[i].log_prob;
        }
    }
    void set_log_prob(std::size_t index, float log_prob) {
        if (nodes_[index].log_prob == log_prob) return;
        nodes_[index].log_prob = log_prob;
        update_path_log_probs(index);
    }

    /// Removes the least probable node that `may_go` accepts, if its path is less probable than
    /// `path_log_prob`, the probability of the node that needs the place. The removed node is a
    /// leaf, provided that `may_go` also accepts all nodes below one that it accepts: children are
    /// younger than their parent and not more probable.
    template <typename MayGo>
    [[nodiscard]] std::optional<Node> make_room(float path_log_prob, const MayGo& may_go) {
        std::size_t least = 0;
        for (std::size_t i = 1; i < nodes_.size(); ++i) {
            if (nodes_[i].path_log_prob >= path_log_prob || !may_go(nodes_[i])) continue;
            if (least == 0 || nodes_[i].path_log_prob <= nodes_[least].path_log_prob) least = i;
        }
        if (least == 0) return std::nullopt;
        const Node gone = nodes_[least];
        nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(least));
        return gone;
    }

    /// `top` becomes the root, what stands below it stays; each other node is passed to `drop`.
    template <typename Drop>
    void keep_below(const Node& top, const Drop& drop) {
        std::vector<Node> kept{top};
        for (const Node& node : nodes_) {
            if (node.id == top.id) continue;
            const bool stays = std::any_of(kept.begin(), kept.end(), [&](const Node& above) {
                return above.id != Node::kNone && above.id == node.parent;
            });
            if (stays) {
                kept.push_back(node);
            } else {
                drop(node);
            }
        }
        nodes_ = std::move(kept);
    }

    std::vector<Node> nodes_;

private:
    bool sorted_;
    std::size_t nodes_max_;
};

}  // namespace paceline
