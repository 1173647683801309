// DraftTree: what a draft believes of how one request's text goes on, and which of it is in the
// draft model's cache.
//
//     committed ... r                    r: the root, the last committed token
//                   |
//                   a --- b --- c        the trunk: the best child, its best child, and so on
//                   |
//                   +---- x              a runner-up, or what an exit of the target named
//
// A node is expanded once its possible children are known. A verdict is tokens: what
// matches them becomes text, the subtree below the last of them stays, all else is dropped.
// Slots that are no longer used are handed over by take_freed(), whatever freed them.
// Pure and bounded: of more than nodes_max the least probable leaf goes first. Not thread-safe.
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
    float log_prob = 0.0F;  // after its parent
    float reach = 0.0F;     // of the whole path after the root (log)
    msg::Origin origin = msg::Origin::Trunk;
    KvSlot slot = kNoSlot;  // where the draft model has its keys and values
    bool expanded = false;
    bool drawn = false;  // its children were: they are not drawn again
};

/// What became of a tree when its text went on.
struct Followed {
    bool prepared = false;  // the new root had been proposed
    std::vector<DraftNodeId>
        committed;             // the old root and the candidates that became text, in order
    std::vector<KvSlot> kept;  // the slots of the leading ones: now of the text
};

/// Whose opinion a proposal is.
enum class Opinion : std::uint8_t {
    Trunk,  // another draft's: its probabilities are taken over
    Exit,   // of an exit of the target: pooled with the draft's own, half and half
};

class DraftTree : public CandidateTree<DraftNode> {
public:
    explicit DraftTree(std::size_t nodes_max) : CandidateTree{true, nodes_max} {}

    /// Starts anew: nothing is proposed after this token.
    void plant(TokenId token, Position position);

    /// Adds a child, or gives the one that is there this probability. Nothing when there is no
    /// room for one so improbable.
    std::optional<DraftNodeId> add(DraftNodeId parent,
                                   TokenId token,
                                   float log_prob,
                                   msg::Origin origin);
    /// A model's word on what follows `parent`, best first: the first becomes the trunk's, the
    /// others runners-up. Candidates of others that it did not name share what it has left over.
    void expand(DraftNodeId parent, std::span<const Candidate> candidates);
    /// Nothing more can or need be said after this node for now.
    void close(DraftNodeId id);
    void reopen(DraftNodeId id);
    /// The children of this node were drawn; should they be lost, others are named in their place.
    void mark_drawn(DraftNodeId id);
    void set_slot(DraftNodeId id, KvSlot slot);
    /// Nothing is in the cache any more.
    void drop_slots();

    /// The text goes on with `tokens` (not empty) after the root.
    Followed follow(std::span<const TokenId> tokens);

    /// Merges the proposal of another proposer. `text` is the committed text up to the root: a root
    /// that it has passed is no harm. Of what an exit names after one row, the `alternatives`
    /// most probable new ones are added. Returns whether anything changed.
    bool merge(const msg::Proposal& proposal,
               std::span<const TokenId> text,
               Opinion opinion,
               std::int32_t alternatives);

    /// The most probable nodes below the root and not after `last`, as a proposal: root, count
    /// and nodes are filled in.
    [[nodiscard]] msg::Proposal snapshot(Position last) const;

    /// From the root (included) to the trunk's end.
    [[nodiscard]] std::vector<DraftNodeId> trunk() const;
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
    void merge_node(const msg::ProposedNode& said, DraftNodeId parent, Opinion opinion);

    DraftNodeId next_id_ = 0;
    std::vector<Freed> freed_;
};

}  // namespace paceline
