// merge_proposal(), bind_draw(): candidates of other stages join the token tree of their request.
//
//     text      ... r  a  b            the proposal's root is r; since then a and b were committed
//     proposal      r  a  b  c  d      the current root is its node b: c and d go below it
//                          \ x            and x; of a proposal without a and b nothing is used
//
// Both want a root at or before the current one (later ones: FutureCandidates), and a checked
// message. A candidate whose next token could not be committed gets no children.
// Pure but for the tree.
#pragma once

#include <optional>

#include "actors/protocol/request_state.hpp"
#include "actors/segment/scheduling/future_candidates.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

struct MergedProposal {
    bool on_text = false;  // its root is part of the text
    bool used = false;     // and what was committed since is among its candidates
    /// Of the candidate that is the current root now; nothing: that is the proposal's own root.
    std::optional<msg::Origin> root = {};
};

/// The draft's newest proposal says which rows it wants observed, and by which names; others do not
/// know of them.
[[nodiscard]] MergedProposal merge_proposal(RequestState& state,
                                            const msg::Proposal& proposal,
                                            ProposalSender sender);

/// The children of a node were drawn: from now on they belong to its row, if the tree has that node
/// and it was not sent. Without that row, or after it, they are deterministic candidates.
void bind_draw(RequestState& state, const msg::Draw& draw);

}  // namespace paceline
