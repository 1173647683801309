// RowOrder: the order in which the candidates of one request go into a verify batch, and where it
// may be cut.
//
//     [ root, candidates: best first ........ | observed branch | observed branch | ... ]
//                                             ends[0]           ends[1]           ends[2]
//
// Rows that are only observed (msg::ProposedNode::observe) are of use to later batches alone. They
// come last and yield to other requests' candidates, a branch at a time: a part of one shows the
// proposer nothing. Candidates below an observed one come after all branches: they are right only
// if a guess of the window is.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "actors/decoding/token_tree.hpp"
#include "ipc/base/ids.hpp"

namespace paceline {

struct RowOrder {
    std::vector<NodeId> nodes = {};  // parents before their children
    /// Where the nodes may be cut; before the first one anywhere. Empty: anywhere.
    std::vector<std::uint32_t> ends = {};
};

/// At most `rows_max` of `nodes`, which are not sent yet, in their order, their parents in the tree
/// before them; observed ones and what is above them alone come last, each branch whole, and then
/// what is below them.
[[nodiscard]] RowOrder observed_last(const TokenTree& tree,
                                     std::span<const TreeNode* const> nodes,
                                     std::uint32_t rows_max);

/// Of the first `rows` nodes those that are only observed.
[[nodiscard]] std::uint32_t yielding_rows(const RowOrder& order, std::uint32_t rows);
/// As many of the first `rows` as leave no observed branch in part; all of them if that were none.
[[nodiscard]] std::uint32_t whole_branches(const RowOrder& order, std::uint32_t rows);

}  // namespace paceline
