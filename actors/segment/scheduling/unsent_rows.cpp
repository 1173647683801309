#include "actors/segment/scheduling/unsent_rows.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace paceline {
namespace {

/// Log probability of a path below which no row is sent; of 0: -inf.
float reach_min_log(const RequestState& state, const DispatchOptions& options) {
    return std::log(std::max(options.verify_reach_min, state.spec().speculation.verify_reach_min));
}

RowOrder unsent_trunk(const RequestState& state, const DispatchOptions& options) {
    const TokenTree& tree = state.tree();
    const float reach_min = reach_min_log(state, options);
    // A verdict carries kGammaMax accepted tokens, so a batch may not be deeper than that.
    const std::size_t most = std::min(options.rows_max, kGammaMax + 1);
    std::vector<const TreeNode*> found;
    for (const TreeNode* node = &tree.root(); node != nullptr && found.size() < most;
         node = tree.trunk_child(node->id)) {
        if (!worth_a_row(state, *node) || node->path_log_prob < reach_min) break;
        if (!node->sent()) found.push_back(node);
    }
    return observed_last(tree, found, options.rows_max);
}

RowOrder unsent_tree(const RequestState& state, const DispatchOptions& options) {
    const TokenTree& tree = state.tree();
    const Position deepest = tree.root().position + static_cast<Position>(kGammaMax);
    const float reach_min = reach_min_log(state, options);
    std::vector<const TreeNode*> found;
    std::vector<NodeId> reachable;  // sent, or in `found`: ascending, as the tree's nodes are
    for (const TreeNode& node : tree.nodes()) {
        const bool is_root = node.id == tree.root().id;
        if (!is_root && !std::binary_search(reachable.begin(), reachable.end(), node.parent)) {
            continue;
        }
        if (!worth_a_row(state, node) || node.path_log_prob < reach_min || node.position > deepest)
            continue;
        reachable.push_back(node.id);
        if (!node.sent()) found.push_back(&node);
    }
    // A child is at most as probable as its parent, and younger: it comes after it.
    std::sort(found.begin(), found.end(), [](const TreeNode* a, const TreeNode* b) {
        return a->path_log_prob != b->path_log_prob ? a->path_log_prob > b->path_log_prob
                                                    : a->id < b->id;
    });
    return observed_last(tree, found, options.rows_max);
}

}  // namespace

bool worth_a_row(const RequestState& state, const TreeNode& node) {
    const FinishRule& rule = state.finish_rule();
    const TreeNode& root = state.tree().root();
    // The root is committed and did not end the answer: an end token there comes from the prompt.
    if (node.id == root.id) return rule.room_at(node.position + 1) >= 1;
    const SpeculationLimits& limits = state.spec().speculation;
    const Position depth = node.position - root.position;
    if (!limits.on || limits.depth_max(depth) < depth) return false;
    return rule.after(node.token, node.position) == FinishReason::None;
}

RowOrder unsent_rows(const RequestState& state, const DispatchOptions& options) {
    return options.shape == BatchShape::Chain ? unsent_trunk(state, options)
                                              : unsent_tree(state, options);
}

}  // namespace paceline
