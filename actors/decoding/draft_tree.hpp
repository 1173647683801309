// DraftTree: a draft's tree of candidates for one request, with the probability of each, and which
// of them are in the draft model's KV cache.
//
//     committed ... r                    r: the root, the last committed token
//                   |
//                   a --- b --- c        the trunk: the best child, its best child, and so on
//                   |
//                   +---- x              a runner-up, or a candidate of an exit of the target
//
// A node is expanded once its possible children are known. On a verdict the nodes that match its
// tokens become text, the subtree below the last of them stays, and all other nodes are dropped.
// take_freed() returns all slots that are no longer used.
// Pure and bounded: beyond nodes_max the least probable leaf is removed. Not thread-safe.
// Invariants: those of CandidateTree; ids ascend; a node's slot implies its parent's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/decoding/candidate_tree.hpp"
#include "actors/decoding/token_tree.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/wire/messages.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

using DraftNodeId = std::uint32_t;
inline constexpr DraftNodeId kNoDraftNode = 0xffffffffU;

struct DraftNode {
    static constexpr DraftNodeId kNone = kNoDraftNode;

    DraftNodeId id = kNoDraftNode;
    DraftNodeId parent = kNoDraftNode;
    TokenId token = 0;
    Position position = 0;
    float log_prob = 0.0F;       // after its parent
    float path_log_prob = 0.0F;  // of the whole path after the root (log)
    msg::Origin origin = msg::Origin::Trunk;
    std::uint8_t observe = 0;  // as in msg::ProposedNode
    KvSlot slot = kNoSlot;     // where the draft model has its keys and values
    bool expanded = false;
    bool drawn = false;      // its children were drawn: they are not drawn again
    bool tentative = false;  // for one pass of the model: it goes unless the model proposes it
};

/// What a verdict did to a tree.
struct DraftTreeUpdate {
    bool prepared = false;  // the new root had been proposed
    std::vector<DraftNodeId>
        committed;             // the old root and the candidates that became text, in order
    std::vector<KvSlot> kept;  // the slots of the leading ones: now of the text
    std::vector<JudgedNode> judged = {};  // candidates that the tokens showed right or wrong
};

/// Where a proposal comes from.
enum class ProposalSource : std::uint8_t {
    Trunk,  // another draft's: its probabilities are taken over
    Exit,   // of an exit of the target: pooled with the draft's own, half and half
};

class DraftTree : public CandidateTree<DraftNode> {
public:
    explicit DraftTree(std::size_t nodes_max) : CandidateTree{true, nodes_max} {}

    /// A new tree of this root alone.
    void plant(TokenId token, Position position);

    /// Adds a child, or gives the one that is there this probability. Nothing when there is no
    /// room for one so improbable.
    std::optional<DraftNodeId> add(DraftNodeId parent,
                                   TokenId token,
                                   float log_prob,
                                   msg::Origin origin);
    /// A model's candidates after `parent`, best first: the first becomes the trunk's, the others
    /// runners-up. Children from other sources that are not among them share the remaining
    /// probability.
    void expand(DraftNodeId parent, std::span<const Candidate> candidates);
    /// A child for one pass of the model: expand() makes a candidate of it if the model proposes
    /// it, otherwise drop_tentative() removes it with what is below it. It is in no proposal.
    std::optional<DraftNodeId> add_tentative(DraftNodeId parent, TokenId token, float log_prob);
    void drop_tentative();
    /// This node is not expanded for now.
    void close(DraftNodeId id);
    void reopen(DraftNodeId id);
    /// The children of this node were drawn; should they be lost, others are proposed in their
    /// place.
    void mark_drawn(DraftNodeId id);
    /// The target's token after this node is wanted, under this name.
    void observe(DraftNodeId id, std::uint8_t name);
    void set_slot(DraftNodeId id, KvSlot slot);
    /// All nodes lose their slots: the cache is to be filled again.
    void drop_slots();

    /// `tokens` (not empty) were committed after the root.
    DraftTreeUpdate follow(std::span<const TokenId> tokens);

    /// Merges the proposal of an exit or of the other draft. `text` is the committed text up to the
    /// root: the proposal's root may lie before it. Of an exit's candidates after one row, the
    /// `alternatives` most probable new ones are added. Returns whether the tree changed.
    bool merge(const msg::Proposal& proposal,
               std::span<const TokenId> text,
               ProposalSource source,
               std::int32_t alternatives);

    /// The most probable nodes below the root and not after `last`, at most `count` of them, as a
    /// proposal: root, count and nodes are filled in.
    [[nodiscard]] msg::Proposal snapshot(Position last,
                                         std::size_t count = kProposalNodesMax) const;

    /// From the root (included) to the trunk's end.
    [[nodiscard]] std::vector<DraftNodeId> trunk() const;
    /// The tokens between the root and this node, which is in the tree; its own is the last.
    [[nodiscard]] std::vector<TokenId> tokens_to(DraftNodeId node) const;
    [[nodiscard]] std::int32_t depth(const DraftNode& node) const {
        return node.position - root().position;
    }

    struct Freed {
        Position position;
        KvSlot slot;
    };
    /// Slots that were given up since this was last asked.
    [[nodiscard]] std::vector<Freed> take_freed() { return std::exchange(freed_, {}); }

private:
    [[nodiscard]] DraftNode* get(DraftNodeId id);
    void drop(const DraftNode& node);
    [[nodiscard]] std::vector<bool> below_tentative() const;
    void judge(DraftNodeId parent, TokenId token, std::vector<JudgedNode>& judged) const;
    void merge_node(const msg::ProposedNode& said, DraftNodeId parent, ProposalSource source);

    DraftNodeId next_id_ = 0;
    std::vector<Freed> freed_;
};

/// Of the model's own first choices that a verdict which comes next has judged, how many stood.
struct JudgedTrunk {
    int accepted = 0;
    int drafted = 0;
};
[[nodiscard]] JudgedTrunk judged_trunk(const DraftTree& tree, const msg::Verdict& verdict);

}  // namespace paceline
