// TokenTree: the candidates of one request, and the rule by which a verdict changes them.
//
//     committed ... r                    r: the root, the last committed token
//                   |
//                   a --- b --- c        the trunk: the draft's first choices
//                   |
//                   +---- x --- y        an alternative after a
//
// The first segment grows the tree and gives nodes their ids; the other segments keep a replica
// that has only the nodes that were sent in batches. All apply the same rule on a verdict:
//
//     the accepted path is committed; the subtree under (last accepted node, next token) is the
//     new tree, its top the new root; everything else is dropped.
//
// So replicas that applied the same batches and verdicts hold the same sent nodes, and a row whose
// parent is in no replica any more is stale everywhere. NodeIds are never used twice.
// Pure: no I/O, no clock. Bounded by nodes_max. Not thread-safe.
// Invariants: those of CandidateTree; a child's position is its parent's plus one; the dispatcher's
// nodes stand in the order of their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/candidate_tree.hpp"
#include "actors/decoding/drawn_siblings.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

inline constexpr KvSlot kNoSlot = -1;

struct TreeNode {
    static constexpr NodeId kNone{msg::kNoParent};

    NodeId id;
    NodeId
        parent;  // of the root: what it was below when its id was assigned, or TokenTree::kNoNode
    TokenId token = 0;
    Position position = 0;
    KvSlot slot = kNoSlot;  // kNoSlot: not sent to the target yet
    // Dispatcher only: how probable the node is after its parent, and its whole path after the
    // root (log), as its proposers believe.
    float log_prob = 0.0F;
    float path_log_prob = 0.0F;
    msg::Origin origin = msg::Origin::Trunk;  // whose candidate it was
    std::uint8_t observe = 0;                 // as in msg::ProposedNode
    DrawnSiblingsPtr drawn_below = nullptr;   // what was drawn after this node before it was sent
    bool pinned = false;  // dispatcher: something was drawn after it, or after a node below it

    [[nodiscard]] bool sent() const { return slot != kNoSlot; }
    friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

/// A candidate below a committed parent: the text has shown whether it was right.
struct JudgedNode {
    msg::Origin origin = msg::Origin::Trunk;
    float log_prob = 0.0F;  // as its proposer believed
    bool right = false;

    friend bool operator==(const JudgedNode&, const JudgedNode&) = default;
};

/// What a verdict did to a tree.
struct TreeUpdate {
    std::vector<TreeNode> committed;      // the old root and the accepted nodes, in order
    std::vector<TreeNode> dropped;        // sent nodes that died: their slots are free again
    bool prepared = false;                // the new root was in the tree already: root().origin
                                          // says whose candidate it was
    std::vector<JudgedNode> judged = {};  // dispatcher: all candidates that it showed right or
                                          // wrong, sent or not
};

enum class Adoption : std::uint8_t { Live, Stale };

enum class TreeRole : std::uint8_t {
    Names,    // the dispatcher's tree: every node has an id from the start
    Follows,  // a replica: a root that a verdict made has no id until a batch brings it
};

class TokenTree : public CandidateTree<TreeNode> {
public:
    /// The id of a node that has no name, and the parent of a node that has none.
    static constexpr NodeId kNoNode = TreeNode::kNone;

    TokenTree(TreeRole role, std::size_t nodes_max)
        : CandidateTree{role == TreeRole::Names, nodes_max}, role_{role} {}

    /// A new tree of this root alone. Ids continue to count up.
    void plant(TokenId token, Position position);

    /// Dispatcher: adds a child and names it, or returns the child that is there already (its
    /// probability becomes the newer one, its origin stays). log_prob <= 0. `observe`: the name by
    /// which it is observed from now on, 0 for not at all; nothing: as before. A node that was sent
    /// keeps its name. When the tree is full the most improbable leaf that was not sent makes room,
    /// if the new node is more probable; nothing if it is not.
    std::optional<NodeId> grow(NodeId parent,
                               TokenId token,
                               float log_prob = 0.0F,
                               msg::Origin origin = msg::Origin::Trunk,
                               std::optional<std::uint8_t> observe = {});
    /// Dispatcher: the children of `node` were drawn. False, and no effect, if it was sent already,
    /// or they were drawn before. From now on it does not make room for others.
    bool take_drawn(NodeId node, DrawnSiblingsPtr drawn);
    /// Dispatcher: a node goes into a batch; it writes its keys and values to `slot`. Its parent
    /// was sent before, or is committed. Returns the node as the batch's row must show it.
    [[nodiscard]] msg::BatchRow send(NodeId node, KvSlot slot);

    /// Replica: takes a row of a batch into the tree, and what was drawn after it. Stale: its
    /// parent was dropped, or it stands where the verdict put another token. Errors: Protocol for a
    /// row that contradicts the tree (a name that is in use, a wrong position, a sibling of the
    /// same token, no room).
    Result<Adoption> adopt(const msg::BatchRow& row, const DrawnSiblingsPtr& drawn = nullptr);

    /// The rule. `accepted` is a path of sent nodes that starts below the root; `next` is the
    /// target's own token after it. Errors: Protocol if that path is not in the tree (which is
    /// then unchanged).
    Result<TreeUpdate> apply(std::span<const NodeId> accepted, TokenId next);

private:
    [[nodiscard]] NodeId new_name();
    [[nodiscard]] std::vector<JudgedNode> judged_by(std::span<const TreeNode> committed,
                                                    TokenId next) const;
    Result<Adoption> adopt_root(const msg::BatchRow& row, const DrawnSiblingsPtr& drawn);
    [[nodiscard]] Result<std::vector<TreeNode>> committed_by(
        std::span<const NodeId> accepted) const;

    TreeRole role_;
    std::uint32_t next_name_ = 0;
    NodeId last_committed_ = kNoNode;  // the node that the root hangs below, if one is known
};

}  // namespace paceline
