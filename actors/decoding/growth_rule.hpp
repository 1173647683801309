// GrowthRule: how a draft grows its tree; what makes the methods differ. Plain values.
//
//     method                     pace      width  own_alternatives  exit_alternatives
//     sequential                Sequential 1      0                 0
//     sequential, with trees     Sequential n      1 ..              0
//     the same, EAGLE-2's       Sequential k      k - 1 (Levels)    0
//     PEARL, event-driven        Ahead     1      0                 0
//     PEARL, as published        Lockstep  1      0                 0
//     FOLD on sequential        Sequential n      0                 k
//     FOLD on PEARL              Ahead     n      0                 k
//     FOLD as published          Lockstep  n      0                 k, gamma_early = gamma1
//     hybrid (FOLD and SSD)      Ahead     n      1 ..              k
#pragma once

#include <cstdint>

#include "ipc/base/limits.hpp"

namespace paceline {

enum class DraftPace : std::uint8_t {
    Sequential,  // up to gamma candidates after the root, then it waits for the verdict
    Ahead,       // continues below its own proposal while the target runs
    Lockstep,    // rounds of gamma steps; the next one begins with the verdict
};

/// Which nodes this stage expands. Without a separate Correct: both.
enum class GrowthPart : std::uint8_t { Both, Trunk, Alternatives };

/// Which nodes of a sequential draft's tree are expanded in one pass.
enum class GrowthTree : std::uint8_t {
    BestFirst,  // the most probable ones, at any depth
    // EAGLE-2: those of one level, the `width` most probable ones; `gamma` levels, and as many
    // children after each node. Of all nodes the `tree_nodes` most probable ones are proposed.
    Levels,
};

struct GrowthRule {
    DraftPace pace = DraftPace::Sequential;
    GrowthPart part = GrowthPart::Both;
    // Depth of the trunk below the root per round; with Ahead the deepest it may get.
    std::int32_t gamma = 8;
    std::int32_t gamma_early = 0;    // lockstep FOLD: the first gamma1 of them, before the exit's
                                     // candidates arrive; the others are gamma2. 0: no such wait
    bool adaptive = false;           // assisted generation's length: +2 if all were right, else -1
    bool thompson = false;           // the length is drawn (thompson_length.hpp), up to gamma
    double thompson_decay = 0.95;    // of its counts, at each verdict
    float confidence_min = 0.0F;     // a chain ends after a token less probable than this
    bool threshold_adapts = false;   // draft_reach_min, or confidence_min, is moved towards
    double acceptance_target = 0.9;  // such a part of accepted candidates (adaptive_stops.hpp)
    GrowthTree tree = GrowthTree::BestFirst;
    std::int32_t tree_nodes = 59;       // Levels: candidates of a proposal
    std::int32_t width = 1;             // nodes expanded in one pass of the model
    std::int32_t own_alternatives = 0;  // runners-up proposed after each expanded node
    // With the rejection rule and a temperature: the model draws its candidates after a node, from
    // its draw_top most probable tokens, instead of proposing the best ones (drawn_siblings.hpp).
    bool draws = false;
    std::int32_t draw_top = kDrawnSupportMax;
    std::int32_t exit_alternatives = 0;  // k: of an exit's candidates per row, those grown
    std::int32_t branch_budget = 48;     // nodes off the trunk that are expanded per root
    float draft_reach_min = 1e-3F;       // after a path less probable than this nothing is drafted

    [[nodiscard]] bool by_levels() const {
        return tree == GrowthTree::Levels && pace == DraftPace::Sequential;
    }
    /// Candidates that the model gives after an expanded node.
    [[nodiscard]] std::int32_t children() const {
        return by_levels() ? width : 1 + own_alternatives;
    }
    /// Candidates of a proposal, at most: the most probable ones.
    [[nodiscard]] std::int32_t proposed_max() const {
        return by_levels() ? tree_nodes : static_cast<std::int32_t>(kProposalNodesMax);
    }
};

}  // namespace paceline
