// Growth: what a draft does next for one request: which nodes of its tree it expands, which state
// its proposals have, and when it waits. The state machine of a round, under a GrowthRule.
//
//   Sequential [Growing] -- trunk gamma deep --> send Complete [Done] -- verdict --> [Growing]
//              while Done, the exit's candidates are grown until the verdict
//              With GrowthTree::Levels a level of the tree in each pass, gamma of them
//   Ahead      [Growing] all the time, the most probable node first; Complete when none can be
//              expanded
//   Lockstep   [Growing] -- gamma_early steps --> send Halfway [ForCandidates]
//              [ForCandidates] -- the exit's candidates, a verdict or the time limit --> [Growing]
//              [Growing] -- gamma steps in all --> send Complete [Done] -- verdict --> [Growing]
//              A verdict before Complete ends the round if none of its candidates are left; the
//              next round begins at once.
//
// A draft that is not worth its time is paused: it sends Complete at once. With the part
// Alternatives (Correct) the state is always Growing, and only nodes off the trunk are grown.
// Pure; the caller does the passes, sends, and keeps the clock.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "actors/decoding/draft_tree.hpp"
#include "actors/decoding/growth_rule.hpp"
#include "actors/decoding/stop_policy.hpp"
#include "actors/decoding/thompson_length.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

/// Which nodes of a tree may be expanded now.
struct GrowthView {
    std::int32_t trunk_depth = 0;   // the trunk gets no deeper than this
    std::int32_t branch_depth = 0;  // nor do other paths than this
    bool trunk_first = false;       // else whatever is most probable
};

/// What another pass is worth: paths less probable than `least` are not expanded.
struct GrowthWorth {
    float least = 0.0F;                 // 0: all are
    std::vector<float> paths_log = {};  // of the tree's nodes, calibrated; empty: as estimated
};

/// Up to rule.width nodes to expand in one pass, best first: unexpanded nodes that the rule's part,
/// depths, stops and branch_budget (the number of expanded nodes off the trunk) allow.
[[nodiscard]] std::vector<DraftNodeId> nodes_to_expand(const DraftTree& tree,
                                                       const GrowthRule& rule,
                                                       const GrowthView& view,
                                                       const GrowthWorth& worth = {});

/// EAGLE-2: of each level above `depth`, from the root on, the rule's `width` most probable nodes
/// are chosen; those that are not expanded of the first level with one. Ended paths are not chosen.
/// Empty: all of them are expanded.
[[nodiscard]] std::vector<DraftNodeId> level_to_expand(const DraftTree& tree,
                                                       const GrowthRule& rule,
                                                       std::int32_t depth,
                                                       const GrowthWorth& worth = {});

class Growth {
public:
    /// `seed`: of a length that is drawn.
    explicit Growth(const GrowthRule& rule, std::uint64_t seed = 0);

    struct Step {
        std::vector<DraftNodeId> expand;        // in the next pass; empty: none
        std::int32_t chain = 0;                 // tokens that a source of chains may add after
                                                // expand[0] in this step
        std::optional<msg::ProposalState> say;  // first; then ask again
        bool waits_for_candidates = false;      // not longer than the caller's limit
    };
    /// `room`: candidates below the root that could still be committed.
    [[nodiscard]] Step next(const DraftTree& tree, std::int32_t room);

    /// The thresholds of the chains from now on.
    void stop_at(const ChainStop& stop);
    /// What passes are worth in the next next(). Not with Lockstep.
    void weigh(GrowthWorth worth) { worth_ = std::move(worth); }
    /// Nothing is expanded until this is called with false. Not with Lockstep.
    void pause(bool paused) { paused_ = paused; }
    /// At most so many candidates below the root on a path.
    void limit(std::int32_t candidates) { limit_ = candidates; }
    /// The pass of a step has ended: a source's chain of `tokens` after its first node, or 1 of a
    /// model.
    void passed(std::int32_t tokens = 1);
    /// A verdict was applied; `prepared`: the new root was in the tree.
    void verified(std::int32_t accepted, std::int32_t could, bool prepared);
    /// The exit's candidates for the rows of a batch have arrived.
    void candidates_arrived();
    /// The exit's candidates did not arrive within the time limit.
    void waited_out();

    [[nodiscard]] const GrowthRule& rule() const { return rule_; }
    /// Whether the tree is sent as it grows, not only at the end of a round.
    [[nodiscard]] bool streams() const;
    /// Lockstep: the root's position when the round began; the Complete of the round is about that
    /// root.
    [[nodiscard]] std::optional<Position> round_root() const { return round_.root; }
    [[nodiscard]] std::int32_t gamma() const { return drawn_ ? drawn_->now() : length_.now(); }

private:
    enum class Phase : std::uint8_t { Growing, ForCandidates, Done };

    struct Round {
        Phase phase = Phase::Growing;
        bool candidates_known = false;  // since the root, or the round, began
        bool halfway = false;           // was said
        bool owed = false;              // a verdict came before the round was complete
        std::optional<Position> root = {};
        std::int32_t steps = 0;  // of it; Alternatives: since the candidates
    };

    Step sequential(const DraftTree& tree, std::int32_t room);
    [[nodiscard]] Step by_level(const DraftTree& tree, std::int32_t depth);
    Step ahead(const DraftTree& tree, std::int32_t room);
    Step round(const DraftTree& tree, std::int32_t room);
    Step alternatives(const DraftTree& tree, std::int32_t room);
    Step complete();
    [[nodiscard]] Step step(const DraftTree& tree,
                            const GrowthView& view,
                            std::int32_t chain_max) const;
    [[nodiscard]] std::int32_t gamma_late() const { return rule_.gamma - rule_.gamma_early; }

    GrowthRule rule_;
    DraftLength length_;
    std::optional<ThompsonLength> drawn_;  // takes its place
    GrowthWorth worth_;
    bool paused_ = false;
    std::int32_t limit_ = kGammaMax;
    Round round_;
    bool complete_ = false;  // Ahead: was said since the tree last grew
};

}  // namespace paceline
