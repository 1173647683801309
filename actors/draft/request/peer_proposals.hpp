// PeerProposals: what other stages propose for a request: an exit's candidates, at Correct the
// trunk of Draft, and at Draft the branches of Correct.
//
// A proposal for a future root is kept until the text is there: its sender may have received the
// verdict first. Branches are kept until a verdict's new root is not in this tree: then Correct's
// candidates below that root are taken over, at once or when they arrive.
// Threads: the actor's loop.
#pragma once

#include <cstdint>
#include <optional>

#include "actors/draft/draft_text.hpp"
#include "actors/draft/request/trunk_copy.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

/// The newest proposal for a root that the text has not reached.
class EarlyProposal {
public:
    /// Whether `proposal` is for a root after `root`; it is kept then.
    bool keep(const msg::Proposal& proposal, Position root);
    /// The kept one, once the text has reached its root.
    [[nodiscard]] std::optional<msg::Proposal> take_due(Position root);

private:
    std::optional<msg::Proposal> kept_;
};

class PeerProposals {
public:
    /// `exit_alternatives`: of an exit's candidates per row, those grown.
    explicit PeerProposals(std::int32_t exit_alternatives)
        : exit_alternatives_{exit_alternatives} {}

    /// Merges an exit's candidates. Whether the tree has changed; nothing if they are kept.
    std::optional<bool> merge_candidates(const msg::Proposal& candidates, DraftText& text);
    /// Merges Draft's trunk; false if it is kept.
    bool merge_trunk(const msg::Proposal& trunk, DraftText& text);
    [[nodiscard]] std::optional<msg::Proposal> take_due_candidates(Position root) {
        return early_candidates_.take_due(root);
    }
    [[nodiscard]] std::optional<msg::Proposal> take_due_trunk(Position root) {
        return early_trunk_.take_due(root);
    }

    /// Correct's latest.
    void keep_branches(const msg::Proposal& branches) { branches_ = branches; }
    /// Whether branches below the root were taken over. This draft goes on after the last of them.
    bool take_branches(DraftText& text);

    [[nodiscard]] const TrunkCopy& trunk() const { return trunk_; }

private:
    std::int32_t exit_alternatives_;
    EarlyProposal early_candidates_;
    EarlyProposal early_trunk_;
    TrunkCopy trunk_;
    std::optional<msg::Proposal> branches_;
    std::optional<Position> branches_root_;  // where they were last taken over
};

}  // namespace paceline
