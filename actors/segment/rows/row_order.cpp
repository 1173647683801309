#include "actors/segment/rows/row_order.hpp"

#include <algorithm>
#include <iterator>
#include <set>

namespace paceline {
namespace {

bool is_observed(const TreeNode* node) {
    return node->observe != 0;
}

/// Adds nodes with the unsent ones above them, as long as there is room.
class Taker {
public:
    Taker(const TokenTree& tree, std::uint32_t rows_max) : tree_{tree}, rows_max_{rows_max} {}

    /// False, and no effect: there is no room for all of them.
    bool take(const TreeNode& last) {
        std::vector<NodeId> more;
        for (const TreeNode* node : tree_.path(last.id)) {
            if (!node->sent() && !taken_.contains(node->id)) more.push_back(node->id);
        }
        if (order_.nodes.size() + more.size() > rows_max_) return false;
        taken_.insert(more.begin(), more.end());
        order_.nodes.insert(order_.nodes.end(), more.begin(), more.end());
        return true;
    }
    void end() { order_.ends.push_back(static_cast<std::uint32_t>(order_.nodes.size())); }
    [[nodiscard]] const RowOrder& order() const { return order_; }

private:
    const TokenTree& tree_;
    std::uint32_t rows_max_;
    std::set<NodeId> taken_;
    RowOrder order_;
};

/// All of them in their order, as far as there is room.
RowOrder as_they_are(std::span<const TreeNode* const> nodes, std::uint32_t rows_max) {
    RowOrder order;
    for (const TreeNode* node : nodes.first(std::min<std::size_t>(nodes.size(), rows_max)))
        order.nodes.push_back(node->id);
    return order;
}

}  // namespace

RowOrder observed_last(const TokenTree& tree,
                       std::span<const TreeNode* const> nodes,
                       std::uint32_t rows_max) {
    const auto all = tree.nodes();
    const bool none = std::none_of(all.begin(), all.end(),
                                   [](const TreeNode& node) { return is_observed(&node); });
    if (none) return as_they_are(nodes, rows_max);
    // Above an observed node or observed itself, and below one, which may be sent already.
    std::set<NodeId> above_observed;
    std::set<NodeId> below_observed;
    for (const TreeNode* node : nodes) {
        for (const TreeNode* above : tree.path(node->id)) {
            if (above->id == tree.root().id) continue;  // committed
            if (is_observed(node)) above_observed.insert(above->id);
            if (above->id != node->id && is_observed(above)) below_observed.insert(node->id);
        }
    }
    if (above_observed.empty() && below_observed.empty()) return as_they_are(nodes, rows_max);
    const auto yields = [&](const TreeNode* node) {
        return above_observed.contains(node->id) || below_observed.contains(node->id);
    };
    Taker taker{tree, rows_max};
    for (const TreeNode* node : nodes) {
        if (!yields(node) && !taker.take(*node)) break;
    }
    taker.end();
    for (const TreeNode* node : nodes) {
        if (is_observed(node) && taker.take(*node)) taker.end();
    }
    for (const TreeNode* node : nodes) {
        if (below_observed.contains(node->id) && taker.take(*node)) taker.end();
    }
    return taker.order();
}

std::uint32_t yielding_rows(const RowOrder& order, std::uint32_t rows) {
    return order.ends.empty() ? 0 : rows - std::min(rows, order.ends.front());
}

std::uint32_t whole_branches(const RowOrder& order, std::uint32_t rows) {
    if (order.ends.empty() || rows <= order.ends.front()) return rows;
    const std::uint32_t whole =
        *std::prev(std::upper_bound(order.ends.begin(), order.ends.end(), rows));
    return whole == 0 ? rows : whole;
}

}  // namespace paceline
