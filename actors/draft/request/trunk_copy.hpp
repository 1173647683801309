// TrunkCopy: at Correct, the trunk that Draft sent last: whose nodes the keys and values that
// follow it belong to.
// Plain values. Threads: the actor's loop.
#pragma once

#include <optional>
#include <vector>

#include "actors/draft/draft_text.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

class TrunkCopy {
public:
    /// `trunk` replaces the last one.
    void take(const msg::Proposal& trunk);

    /// The tree's node of the trunk at `position`; nothing if that is committed by now or not in
    /// the tree.
    [[nodiscard]] std::optional<DraftNodeId> node_at(const DraftText& text,
                                                     Position position) const;
    /// Whether the committed text equals the trunk up to `position`.
    [[nodiscard]] bool is_text_at(const DraftText& text, Position position) const;

private:
    Position root_ = 0;
    std::vector<TokenId> tokens_;  // the root's token first
};

}  // namespace paceline
