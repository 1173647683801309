#include "actors/decoding/token_tree.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

Error protocol(const std::string& what) {
    return Error{Errc::Protocol, what};
}

std::string text_of(const msg::WaveRow& row) {
    return "row of node " + std::to_string(row.node.value) + " (parent " +
           std::to_string(row.parent) + ", token " + std::to_string(row.token) + ", position " +
           std::to_string(row.position) + ")";
}

}  // namespace

NodeId TokenTree::new_name() {
    PACE_CHECK(next_name_ != msg::kNoParent, "a request has used up its node names");
    return NodeId{next_name_++};
}

void TokenTree::plant(TokenId token, Position position) {
    const NodeId name = role_ == TreeRole::Names ? new_name() : kNobody;
    nodes_.assign(1, {.id = name, .parent = kNobody, .token = token, .position = position});
    last_committed_ = kNobody;
}

std::size_t TokenTree::index_of(NodeId id) const {
    if (role_ == TreeRole::Names) {
        const auto place =
            std::lower_bound(nodes_.begin(), nodes_.end(), id,
                             [](const TreeNode& node, NodeId wanted) { return node.id < wanted; });
        return place != nodes_.end() && place->id == id
                   ? static_cast<std::size_t>(place - nodes_.begin())
                   : nodes_.size();
    }
    const auto it = std::find_if(nodes_.begin(), nodes_.end(),
                                 [id](const TreeNode& node) { return node.id == id; });
    return static_cast<std::size_t>(it - nodes_.begin());
}

const TreeNode* TokenTree::find(NodeId id) const {
    if (id == kNobody) return nullptr;
    const std::size_t index = index_of(id);
    return index < nodes_.size() ? &nodes_[index] : nullptr;
}

const TreeNode* TokenTree::child(NodeId parent, TokenId token) const {
    if (parent == kNobody) return nullptr;
    // The root's parent is gone, so the root is nobody's child even if it remembers a name.
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
        if (nodes_[i].parent == parent && nodes_[i].token == token) return &nodes_[i];
    }
    return nullptr;
}

const TreeNode* TokenTree::trunk_child(NodeId parent) const {
    if (parent == kNobody) return nullptr;
    const TreeNode* best = nullptr;
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
        if (nodes_[i].parent != parent) continue;
        if (best == nullptr || nodes_[i].log_prob >= best->log_prob) best = &nodes_[i];
    }
    return best;
}

std::vector<const TreeNode*> TokenTree::path(NodeId node) const {
    std::vector<const TreeNode*> nodes;
    for (std::size_t i = index_of(node);; i = index_of(nodes_[i].parent)) {
        PACE_CHECK(i < nodes_.size(), "the path of a node that is not in the tree");
        nodes.push_back(&nodes_[i]);
        if (i == 0) break;
    }
    std::reverse(nodes.begin(), nodes.end());
    return nodes;
}

/// Behind a change of probability at `first`, or of the root: parents stand before children.
void TokenTree::update_reach(std::size_t first) {
    nodes_.front().log_prob = 0.0F;
    nodes_.front().reach = 0.0F;
    for (std::size_t i = std::max<std::size_t>(first, 1); i < nodes_.size(); ++i) {
        nodes_[i].reach = nodes_[index_of(nodes_[i].parent)].reach + nodes_[i].log_prob;
    }
}

/// Lets the most improbable unsent node go, if it is less probable than `reach` (which the parent
/// of the new node is not). The youngest of these is a leaf: children are no more probable than
/// their parent, and younger.
bool TokenTree::make_room(float reach) {
    std::size_t worst = nodes_.size();
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
        const TreeNode& node = nodes_[i];
        if (node.sent() || node.reach >= reach) continue;
        if (worst == nodes_.size() || node.reach <= nodes_[worst].reach) worst = i;
    }
    if (worst == nodes_.size()) return false;
    nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(worst));
    return true;
}

std::optional<NodeId> TokenTree::grow(NodeId parent,
                                      TokenId token,
                                      float log_prob,
                                      msg::Origin origin) {
    PACE_CHECK(role_ == TreeRole::Names, "only the dispatcher's tree names nodes");
    PACE_CHECK(log_prob <= 0.0F, "a candidate with a log-probability that is not <= 0");
    const TreeNode* below = find(parent);
    PACE_CHECK(below != nullptr, "a child of a node that is not in the tree");
    if (const TreeNode* known = child(parent, token); known != nullptr) {
        const NodeId name = known->id;
        if (known->log_prob != log_prob) {
            const std::size_t index = index_of(name);
            nodes_[index].log_prob = log_prob;
            update_reach(index);
        }
        return name;
    }
    const Position position = below->position + 1;
    const float reach = below->reach + log_prob;
    if (nodes_.size() >= nodes_max_ && !make_room(reach)) return std::nullopt;
    const NodeId name = new_name();
    nodes_.push_back({.id = name,
                      .parent = parent,
                      .token = token,
                      .position = position,
                      .log_prob = log_prob,
                      .reach = reach,
                      .origin = origin});
    return name;
}

msg::WaveRow TokenTree::send(NodeId node, KvSlot slot) {
    const std::size_t index = index_of(node);
    PACE_CHECK(index < nodes_.size(), "a node is sent that is not in the tree");
    TreeNode& sent = nodes_[index];
    PACE_CHECK(!sent.sent(), "a node is sent twice");
    const TreeNode* parent = index == 0 ? nullptr : find(sent.parent);
    PACE_CHECK(parent == nullptr || parent->sent(), "a node is sent before its parent");
    sent.slot = slot;
    return {.node = sent.id,
            .parent = parent == nullptr ? msg::kNoParent : parent->id.value,
            .token = sent.token,
            .position = sent.position,
            .slot = slot};
}

Result<Adoption> TokenTree::adopt_root(const msg::WaveRow& row) {
    TreeNode& top = nodes_.front();
    if (row.position < top.position) return Adoption::Stale;  // sent before a verdict passed it
    if (row.position != top.position || (row.parent == msg::kNoParent && row.token != top.token)) {
        return protocol(text_of(row) + " is not the root, which has token " +
                        std::to_string(top.token) + " at position " + std::to_string(top.position));
    }
    if (row.token != top.token) return Adoption::Stale;
    if (top.id != kNobody) return protocol(text_of(row) + " is a second root");
    top.id = row.node;
    top.slot = row.slot;
    return Adoption::Live;
}

Result<Adoption> TokenTree::adopt(const msg::WaveRow& row) {
    if (row.node == kNobody) return protocol(text_of(row) + " has no name");
    if (find(row.node) != nullptr) return protocol(text_of(row) + " has a name that is in use");
    const bool below_committed =
        row.parent == msg::kNoParent ||
        (last_committed_ != kNobody && row.parent == last_committed_.value);
    if (below_committed) return adopt_root(row);
    const TreeNode* parent = find(NodeId{row.parent});
    if (parent == nullptr) return Adoption::Stale;
    if (row.position != parent->position + 1) {
        return protocol(text_of(row) + " hangs below position " + std::to_string(parent->position));
    }
    if (child(parent->id, row.token) != nullptr) {
        return protocol(text_of(row) + " repeats the token of its sibling");
    }
    if (nodes_.size() >= nodes_max_) {
        return protocol(text_of(row) + " does not fit: the tree has " +
                        std::to_string(nodes_.size()) + " nodes");
    }
    nodes_.push_back({.id = row.node,
                      .parent = parent->id,
                      .token = row.token,
                      .position = row.position,
                      .slot = row.slot});
    return Adoption::Live;
}

Result<std::vector<TreeNode>> TokenTree::committed_by(std::span<const NodeId> accepted) const {
    if (!root().sent()) return protocol("a verdict came for a root that was never sent");
    std::vector<TreeNode> committed{root()};
    for (const NodeId id : accepted) {
        const std::size_t index = index_of(id);
        if (index == 0 || index >= nodes_.size() || !nodes_[index].sent() ||
            nodes_[index].parent != committed.back().id) {
            return protocol("accepted node " + std::to_string(id.value) +
                            " is not on a path of sent nodes below the root");
        }
        committed.push_back(nodes_[index]);
    }
    return committed;
}

void TokenTree::keep_below(const TreeNode& top, std::vector<TreeNode>& dropped) {
    std::vector<TreeNode> kept{top};
    for (const TreeNode& node : nodes_) {
        if (node.id == top.id) continue;
        const bool lives = std::any_of(kept.begin(), kept.end(), [&](const TreeNode& above) {
            return above.id != kNobody && above.id == node.parent;
        });
        if (lives) {
            kept.push_back(node);
        } else if (node.sent()) {
            dropped.push_back(node);
        }
    }
    nodes_ = std::move(kept);
}

Result<TreeStep> TokenTree::apply(std::span<const NodeId> accepted, TokenId next) {
    Result<std::vector<TreeNode>> committed = committed_by(accepted);
    if (!committed) return committed.error();
    TreeStep step{.committed = std::move(committed.value()), .dropped = {}};
    const TreeNode last = step.committed.back();
    const TreeNode* prepared = child(last.id, next);
    TreeNode top{.id = kNobody, .parent = last.id, .token = next, .position = last.position + 1};
    if (prepared != nullptr) {
        top = *prepared;
        step.prepared = true;
    } else if (role_ == TreeRole::Names) {
        top.id = new_name();
    }
    keep_below(top, step.dropped);
    std::erase_if(step.dropped, [&](const TreeNode& node) {
        return std::any_of(step.committed.begin(), step.committed.end(),
                           [&](const TreeNode& kept) { return kept.id == node.id; });
    });
    last_committed_ = last.id;
    if (role_ == TreeRole::Names) update_reach(1);
    return step;
}

}  // namespace paceline
