// DraftChain: the tokens that a request's target has drafted for itself since the last verdict.
//
//                       verdict, its root is not in a batch
//     [Ended] ----------------------------------------------> [Growing] -- candidate --+
//        ^                                                        |  ^                 |
//        |   stop rule, limit, end token, no slot left            |  +-----------------+
//        +--------------------------------------------------------+
//
// nodes[0] is the root; nodes[i + 1] the candidate after nodes[i]. The last node is the one that is
// computed next, or that ended the chain: it is verified, but its keys were not computed.
// A chain is drafted with one skip set from its beginning to its end: that its leading sub-layers
// are exact depends on it. Plain values; the actor's loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/account/gain_turns.hpp"
#include "actors/decoding/thompson_length.hpp"
#include "actors/protocol/request_state.hpp"
#include "ipc/base/ids.hpp"
#include "model/placed_span.hpp"
#include "model/rows.hpp"
#include "model/skip_set.hpp"

namespace paceline {

/// What of the model a drafted row runs.
struct DraftPath {
    SublayerMask mask = {};
    bool masked = false;
    std::int32_t start = 0;  // sub-layers [0, start) are those of the whole model
    std::int32_t last = 0;   // sub-layers [start, last) run as well, but for those of `mask`
    double layers = 0.0;     // that a row runs, in layers
    SkipSet skipped = {};    // sub-layers that it does not run, in either way
};

struct DraftChain {
    using Micros = std::chrono::microseconds;

    std::shared_ptr<RequestState> state = {};
    std::shared_ptr<const DraftPath> path = {};
    Position root = -1;  // of this chain; -1: none was begun
    std::vector<NodeId> nodes = {};
    std::vector<KvSlot> slots = {};            // of the computed ones
    std::shared_ptr<RowMemory> at_start = {};  // [computed, dim]: residuals before path->start
    float score_product = 1.0F;                // of its tokens
    bool ended = true;
    GainTurns::Round round = {};
    bool drafted = false;                      // in this round
    std::int32_t candidates = 0;               // in the tree: tokens of the chain and runners-up
    bool tapped = false;                       // the verify rows keep their residuals
    std::optional<ThompsonLength> drawn = {};  // its length, where that is drawn
    Micros begun{0};                           // when the verdict before it came; 0: none did

    /// Begins below a root; nothing is drafted yet.
    void begin_below(const TreeNode& node, std::shared_ptr<const DraftPath> with) {
        root = node.position;
        round = {};
        path = std::move(with);
        nodes.assign(1, node.id);
        slots.clear();
        score_product = 1.0F;
        candidates = 0;
    }
    /// A verdict came at this time.
    void end(Micros now) {
        begun = now;
        ended = true;
        drafted = false;
        tapped = false;
        nodes.clear();
        slots.clear();
    }
    /// Candidates of the chain so far.
    [[nodiscard]] std::int32_t drafted_tokens() const {
        return nodes.empty() ? 0 : static_cast<std::int32_t>(nodes.size()) - 1;
    }
};

}  // namespace paceline
