// unsent_rows(): which rows of one request a verify batch could take next, the best first.
//
//     Chain   the trunk: the best child of the root, its best child, and so on
//     Tree    the nodes of the most probable paths; the parent of each is sent or among them
//
// No row is taken whose next token could not be committed (worth_a_row()), that is less probable
// than the limits of options or client, or that lies deeper than a verdict can accept.
// Pure.
#pragma once

#include "actors/protocol/request_state.hpp"
#include "actors/segment/rows/row_order.hpp"
#include "actors/segment/scheduling/dispatch_options.hpp"

namespace paceline {

/// Whether the token after this node of the request's tree could be committed, and the client wants
/// it verified.
[[nodiscard]] bool worth_a_row(const RequestState& state, const TreeNode& node);

/// Precondition: the prompt is computed. Of `options`: shape, rows_max, verify_reach_min.
[[nodiscard]] RowOrder unsent_rows(const RequestState& state, const DispatchOptions& options);

}  // namespace paceline
