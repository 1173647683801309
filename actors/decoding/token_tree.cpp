#include "actors/decoding/token_tree.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

Error protocol(const std::string& what) {
    return Error{Errc::Protocol, what};
}

std::string text_of(const msg::BatchRow& row) {
    return fmt::format("row of node {} (parent {}, token {}, position {})", row.node.value,
                       row.parent, row.token, row.position);
}

}  // namespace

NodeId TokenTree::new_name() {
    PACE_CHECK(next_name_ != msg::kNoParent, "a request has used up its node names");
    return NodeId{next_name_++};
}

void TokenTree::plant(TokenId token, Position position) {
    const NodeId name = role_ == TreeRole::Names ? new_name() : kNoNode;
    nodes_.assign(1, {.id = name, .parent = kNoNode, .token = token, .position = position});
    last_committed_ = kNoNode;
}

std::optional<NodeId> TokenTree::grow(NodeId parent,
                                      TokenId token,
                                      float log_prob,
                                      msg::Origin origin,
                                      std::optional<std::uint8_t> observe) {
    PACE_CHECK(role_ == TreeRole::Names, "only the dispatcher's tree names nodes");
    PACE_CHECK(log_prob <= 0.0F, "a candidate with a log-probability that is not <= 0");
    const TreeNode* below = find(parent);
    PACE_CHECK(below != nullptr, "a child of a node that is not in the tree");
    if (const TreeNode* known = child(parent, token); known != nullptr) {
        const NodeId name = known->id;
        TreeNode& node = nodes_[index_of(name)];
        if (observe && !node.sent()) node.observe = *observe;
        set_log_prob(index_of(name), log_prob);
        return name;
    }
    const Position position = below->position + 1;
    const float path_log_prob = below->path_log_prob + log_prob;
    const auto may_go = [](const TreeNode& node) { return !node.sent() && !node.pinned; };
    if (full() && !make_room(path_log_prob, may_go)) return std::nullopt;
    const NodeId name = new_name();
    nodes_.push_back({.id = name,
                      .parent = parent,
                      .token = token,
                      .position = position,
                      .log_prob = log_prob,
                      .path_log_prob = path_log_prob,
                      .origin = origin,
                      .observe = observe.value_or(0)});
    return name;
}

bool TokenTree::take_drawn(NodeId node, DrawnSiblingsPtr drawn) {
    PACE_CHECK(role_ == TreeRole::Names, "only the dispatcher's tree learns what was drawn");
    const std::size_t index = index_of(node);
    PACE_CHECK(index < nodes_.size(), "something was drawn after a node that is not in the tree");
    if (nodes_[index].sent() || nodes_[index].drawn_below != nullptr) return false;
    nodes_[index].drawn_below = std::move(drawn);
    for (const TreeNode* above : path(node)) nodes_[index_of(above->id)].pinned = true;
    return true;
}

msg::BatchRow TokenTree::send(NodeId node, KvSlot slot) {
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
            .slot = slot,
            .origin = sent.origin,
            .observe = sent.observe};
}

Result<Adoption> TokenTree::adopt_root(const msg::BatchRow& row, const DrawnSiblingsPtr& drawn) {
    TreeNode& top = nodes_.front();
    if (row.position < top.position) return Adoption::Stale;  // sent before a verdict passed it
    if (row.position != top.position || (row.parent == msg::kNoParent && row.token != top.token)) {
        return protocol(fmt::format("{} is not the root, which has token {} at position {}",
                                    text_of(row), top.token, top.position));
    }
    if (row.token != top.token) return Adoption::Stale;
    if (top.id != kNoNode) return protocol(text_of(row) + " is a second root");
    top.id = row.node;
    top.slot = row.slot;
    top.drawn_below = drawn;
    return Adoption::Live;
}

Result<Adoption> TokenTree::adopt(const msg::BatchRow& row, const DrawnSiblingsPtr& drawn) {
    if (row.node == kNoNode) return protocol(text_of(row) + " has no name");
    if (find(row.node) != nullptr) return protocol(text_of(row) + " has a name that is in use");
    const bool below_committed =
        row.parent == msg::kNoParent ||
        (last_committed_ != kNoNode && row.parent == last_committed_.value);
    if (below_committed) return adopt_root(row, drawn);
    const TreeNode* parent = find(NodeId{row.parent});
    if (parent == nullptr) return Adoption::Stale;
    if (row.position != parent->position + 1) {
        return protocol(fmt::format("{} hangs below position {}", text_of(row), parent->position));
    }
    if (child(parent->id, row.token) != nullptr) {
        return protocol(text_of(row) + " repeats the token of its sibling");
    }
    if (full()) {
        return protocol(
            fmt::format("{} does not fit: the tree has {} nodes", text_of(row), nodes_.size()));
    }
    nodes_.push_back({.id = row.node,
                      .parent = parent->id,
                      .token = row.token,
                      .position = row.position,
                      .slot = row.slot,
                      .origin = row.origin,
                      .observe = row.observe,
                      .drawn_below = drawn});
    return Adoption::Live;
}

Result<std::vector<TreeNode>> TokenTree::committed_by(std::span<const NodeId> accepted) const {
    if (!root().sent()) return protocol("a verdict came for a root that was never sent");
    std::vector<TreeNode> committed{root()};
    for (const NodeId id : accepted) {
        const std::size_t index = index_of(id);
        if (index == 0 || index >= nodes_.size() || !nodes_[index].sent() ||
            nodes_[index].parent != committed.back().id) {
            return protocol(fmt::format(
                "accepted node {} is not on a path of sent nodes below the root", id.value));
        }
        committed.push_back(nodes_[index]);
    }
    return committed;
}

/// The children of the committed nodes.
std::vector<JudgedNode> TokenTree::judged_by(std::span<const TreeNode> committed,
                                             TokenId next) const {
    std::vector<JudgedNode> judged;
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
        const TreeNode& node = nodes_[i];
        const auto above =
            std::find_if(committed.begin(), committed.end(),
                         [&](const TreeNode& kept) { return kept.id == node.parent; });
        if (above == committed.end()) continue;
        const auto after = std::next(above);
        const TokenId token = after == committed.end() ? next : after->token;
        judged.push_back({node.origin, node.log_prob, node.token == token});
    }
    return judged;
}

Result<TreeUpdate> TokenTree::apply(std::span<const NodeId> accepted, TokenId next) {
    Result<std::vector<TreeNode>> committed = committed_by(accepted);
    if (!committed) return committed.error();
    TreeUpdate step{.committed = std::move(committed.value()), .dropped = {}};
    const TreeNode last = step.committed.back();
    if (role_ == TreeRole::Names) step.judged = judged_by(step.committed, next);
    const TreeNode* prepared = child(last.id, next);
    TreeNode top{.id = kNoNode, .parent = last.id, .token = next, .position = last.position + 1};
    if (prepared != nullptr) {
        top = *prepared;
        step.prepared = true;
    } else if (role_ == TreeRole::Names) {
        top.id = new_name();
    }
    keep_below(top, [&](const TreeNode& node) {
        const bool is_committed =
            std::any_of(step.committed.begin(), step.committed.end(),
                        [&](const TreeNode& kept) { return kept.id == node.id; });
        if (node.sent() && !is_committed) step.dropped.push_back(node);
    });
    last_committed_ = last.id;
    if (role_ == TreeRole::Names) update_path_log_probs(1);
    return step;
}

}  // namespace paceline
