// CandidateLimits: which candidates can become part of a request's answer: how deep, which tokens,
// and after which of them nothing follows.
// Plain values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "actors/decoding/draft_tree.hpp"
#include "actors/decoding/finish_rule.hpp"
#include "actors/decoding/speculation_limits.hpp"
#include "ipc/base/ids.hpp"

namespace paceline {

struct CandidateLimits {
    FinishRule finish;
    SpeculationLimits speculation;  // the client's
    int vocab_size = 0;             // the target's

    /// Candidates below a root at this position that could still be committed, and that the client
    /// lets in.
    [[nodiscard]] std::int32_t room(Position root) const {
        // The target's own token takes the last place, so one candidate fewer can be of use.
        return speculation.depth_max(finish.room_at(root + 1) - 1);
    }
    /// A draft's vocabulary may be padded beyond the target's.
    [[nodiscard]] bool knows(TokenId token) const { return token >= 0 && token < vocab_size; }
    /// Nothing is grown after candidates that end the answer.
    void close_ends(DraftTree& tree) const {
        const std::vector<TokenId>& ends = finish.end_tokens;
        for (const DraftNode& node : tree.nodes().subspan(1)) {
            if (std::find(ends.begin(), ends.end(), node.token) != ends.end()) tree.close(node.id);
        }
    }
};

}  // namespace paceline
