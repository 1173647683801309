#include "actors/decoding/growth.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

constexpr auto kDeepest = static_cast<std::int32_t>(kGammaMax);

/// By index of the tree's nodes: whether they are of the trunk. For Alternatives that is what the
/// other draft's trunk, also if an exit has changed its probabilities since.
std::vector<bool> marked_trunk(const DraftTree& tree, GrowthPart part) {
    const auto nodes = tree.nodes();
    std::vector<bool> marked(nodes.size(), false);
    if (part != GrowthPart::Alternatives) {
        const std::vector<DraftNodeId> trunk = tree.trunk();
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            marked[i] = std::binary_search(trunk.begin(), trunk.end(), nodes[i].id);
        }
        return marked;
    }
    std::vector<DraftNodeId> of_trunk;  // ascending
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const bool deviates =
            nodes[i].origin == msg::Origin::RunnerUp || nodes[i].origin == msg::Origin::Exit;
        marked[i] = i == 0 || (!deviates && std::binary_search(of_trunk.begin(), of_trunk.end(),
                                                               nodes[i].parent));
        if (marked[i]) of_trunk.push_back(nodes[i].id);
    }
    return marked;
}

/// Whether nothing is expanded behind a node, because of its probability.
class Ends {
public:
    Ends(const GrowthRule& rule, const GrowthWorth& worth)
        : stop_{.confidence_min = rule.confidence_min, .product_min = rule.draft_reach_min},
          worth_{worth},
          least_{std::log(worth.least)} {}  // of 0: -inf

    /// `index`: of the tree's nodes; the root has no end.
    [[nodiscard]] bool behind(const DraftNode& node, std::size_t index) const {
        if (index == 0) return false;
        if (stop_.ends_behind(node.log_prob, node.path_log_prob)) return true;
        const float path = worth_.paths_log.empty() ? node.path_log_prob : worth_.paths_log[index];
        return path < least_;
    }

private:
    ChainStop stop_;
    const GrowthWorth& worth_;
    float least_;
};

}  // namespace

std::vector<DraftNodeId> nodes_to_expand(const DraftTree& tree,
                                         const GrowthRule& rule,
                                         const GrowthView& view,
                                         const GrowthWorth& worth) {
    const auto nodes = tree.nodes();
    const std::vector<bool> trunk = marked_trunk(tree, rule.part);
    const Ends ends{rule, worth};
    std::int32_t budget = rule.branch_budget;
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const DraftNode& node = nodes[i];
        if (node.expanded) {
            // What is observed is in the tree for its tokens: it takes nothing from branches.
            budget -= trunk[i] || node.observe != 0 ? 0 : 1;
            continue;
        }
        if (rule.part == (trunk[i] ? GrowthPart::Alternatives : GrowthPart::Trunk)) continue;
        if (tree.depth(node) >= (trunk[i] ? view.trunk_depth : view.branch_depth)) continue;
        if (ends.behind(node, i)) continue;
        open.push_back(i);
    }
    const auto first_trunk =
        std::find_if(open.begin(), open.end(), [&](std::size_t i) { return trunk[i]; });
    const std::size_t favourite =
        view.trunk_first && first_trunk != open.end() ? *first_trunk : nodes.size();
    std::sort(open.begin(), open.end(), [&](std::size_t a, std::size_t b) {
        if (a == favourite || b == favourite) return a == favourite && b != favourite;
        return nodes[a].path_log_prob > nodes[b].path_log_prob ||
               (nodes[a].path_log_prob == nodes[b].path_log_prob && a < b);
    });
    std::vector<DraftNodeId> chosen;
    for (const std::size_t i : open) {
        if (static_cast<std::int32_t>(chosen.size()) >= rule.width) break;
        if (!trunk[i] && budget-- <= 0) continue;
        chosen.push_back(nodes[i].id);
    }
    return chosen;
}

std::vector<DraftNodeId> level_to_expand(const DraftTree& tree,
                                         const GrowthRule& rule,
                                         std::int32_t depth,
                                         const GrowthWorth& worth) {
    const auto nodes = tree.nodes();
    const Ends ends{rule, worth};
    for (std::int32_t level = 0; level < depth; ++level) {
        std::vector<const DraftNode*> chosen;
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            if (tree.depth(nodes[i]) == level && !ends.behind(nodes[i], i))
                chosen.push_back(&nodes[i]);
        }
        std::stable_sort(chosen.begin(), chosen.end(), [](const DraftNode* a, const DraftNode* b) {
            return a->path_log_prob > b->path_log_prob;
        });
        if (chosen.size() > static_cast<std::size_t>(rule.width))
            chosen.resize(static_cast<std::size_t>(rule.width));
        std::vector<DraftNodeId> open;
        for (const DraftNode* node : chosen) {
            if (!node->expanded) open.push_back(node->id);
        }
        if (!open.empty()) return open;
    }
    return {};
}

Growth::Growth(const GrowthRule& rule, std::uint64_t seed)
    : rule_{rule}, length_{rule.gamma, rule.adaptive && rule.pace == DraftPace::Sequential} {
    if (rule.thompson && rule.pace == DraftPace::Sequential) {
        drawn_.emplace(
            ThompsonOptions{.longest = rule.gamma, .decay = rule.thompson_decay, .seed = seed});
    }
}

Growth::Step Growth::next(const DraftTree& tree, std::int32_t room) {
    room = std::min(room, kDeepest);
    if (rule_.part == GrowthPart::Alternatives) return alternatives(tree, room);
    switch (rule_.pace) {
        case DraftPace::Sequential:
            return sequential(tree, room);
        case DraftPace::Ahead:
            return ahead(tree, room);
        case DraftPace::Lockstep:
            break;
    }
    return round(tree, room);
}

Growth::Step Growth::step(const DraftTree& tree,
                          const GrowthView& view,
                          std::int32_t chain_max) const {
    Step step;
    step.expand = nodes_to_expand(tree, rule_, view, worth_);
    if (step.expand.empty()) return step;
    const std::int32_t depth = tree.depth(*tree.find(step.expand.front()));
    step.chain = std::min(chain_max, std::max(view.trunk_depth, view.branch_depth) - depth);
    return step;
}

Growth::Step Growth::complete() {
    round_.phase = Phase::Done;
    return {.expand = {}, .chain = 0, .say = msg::ProposalState::Complete};
}

Growth::Step Growth::sequential(const DraftTree& tree, std::int32_t room) {
    const std::int32_t depth = std::min({gamma(), room, limit_});
    if (round_.phase == Phase::Growing) {
        if (depth <= 0) {
            round_.phase = Phase::Done;  // nothing that could be of use: the target knows that too
            return {};
        }
        if (paused_) return complete();
        if (rule_.by_levels()) return by_level(tree, depth);
        // The round ends with the trunk: others are grown beside it, not after it.
        GrowthRule trunk = rule_;
        trunk.part = GrowthPart::Trunk;
        if (nodes_to_expand(tree, trunk, {.trunk_depth = depth}, worth_).empty()) return complete();
        return step(tree, {.trunk_depth = depth, .branch_depth = depth, .trunk_first = true},
                    depth);
    }
    if (!round_.candidates_known || paused_) return {};
    return step(tree, {.branch_depth = std::min(depth * 2, room)}, depth);
}

Growth::Step Growth::by_level(const DraftTree& tree, std::int32_t depth) {
    Step step;
    step.expand = level_to_expand(tree, rule_, depth, worth_);
    if (step.expand.empty()) return complete();
    step.chain = depth - tree.depth(*tree.find(step.expand.front()));
    return step;
}

Growth::Step Growth::ahead(const DraftTree& tree, std::int32_t room) {
    const std::int32_t depth = std::min({gamma(), room, limit_});
    Step grow;
    if (!paused_) grow = step(tree, {.trunk_depth = depth, .branch_depth = depth}, depth);
    if (!grow.expand.empty()) {
        complete_ = false;
        return grow;
    }
    if (std::exchange(complete_, true) || depth <= 0) return {};
    return complete();
}

Growth::Step Growth::round(const DraftTree& tree, std::int32_t room) {
    if (round_.phase == Phase::Done && round_.owed) round_ = {};
    if (!round_.root) round_.root = tree.root().position;
    if (round_.phase == Phase::Done) return {};
    if (room <= 0) return complete();
    const bool early = rule_.gamma_early > 0 && !round_.halfway;
    const std::int32_t due = early ? std::min(rule_.gamma_early, rule_.gamma) : rule_.gamma;
    if (round_.phase == Phase::Growing && round_.steps < due) {
        Step grow =
            step(tree, {.trunk_depth = room, .branch_depth = early ? 0 : room, .trunk_first = true},
                 due - round_.steps);
        if (!grow.expand.empty()) return grow;
    }
    if (early) {
        round_.halfway = true;
        if (!round_.candidates_known) round_.phase = Phase::ForCandidates;
        return {.expand = {}, .chain = 0, .say = msg::ProposalState::Halfway};
    }
    if (round_.phase == Phase::ForCandidates)
        return {.expand = {}, .chain = 0, .say = {}, .waits_for_candidates = true};
    return complete();
}

Growth::Step Growth::alternatives(const DraftTree& tree, std::int32_t room) {
    const bool ahead = rule_.pace == DraftPace::Ahead;
    if (paused_ || (!ahead && !round_.candidates_known)) return {};
    if (rule_.pace == DraftPace::Lockstep && round_.steps >= gamma_late()) return {};
    const std::int32_t depth = ahead ? std::min(gamma(), room) : room;
    return step(tree, {.branch_depth = depth}, depth);
}

void Growth::stop_at(const ChainStop& stop) {
    rule_.confidence_min = stop.confidence_min;
    rule_.draft_reach_min = stop.product_min;
}

void Growth::passed(std::int32_t tokens) {
    round_.steps += tokens;
    complete_ = false;
}

void Growth::verified(std::int32_t accepted, std::int32_t could, bool prepared) {
    length_.verified(accepted, could);
    if (drawn_) drawn_->verified(accepted, could);
    complete_ = false;
    if (rule_.part == GrowthPart::Alternatives || rule_.pace != DraftPace::Lockstep) {
        round_.phase = Phase::Growing;
        round_.candidates_known = false;
        round_.steps = 0;
        return;
    }
    if (round_.phase == Phase::Done) {
        round_ = {};
        return;
    }
    round_.owed = true;
    if (round_.phase == Phase::ForCandidates)
        round_.phase = Phase::Growing;  // they would be of the old batch
    round_.halfway = true;
    if (!prepared) round_.steps = rule_.gamma;
}

void Growth::candidates_arrived() {
    if (rule_.part == GrowthPart::Alternatives && !round_.candidates_known) round_.steps = 0;
    round_.candidates_known = true;
    complete_ = false;
    if (round_.phase == Phase::ForCandidates) round_.phase = Phase::Growing;
}

void Growth::waited_out() {
    if (round_.phase == Phase::ForCandidates) round_.phase = Phase::Growing;
}

bool Growth::streams() const {
    return rule_.part == GrowthPart::Alternatives || rule_.pace == DraftPace::Ahead ||
           (rule_.pace == DraftPace::Sequential && round_.phase == Phase::Done);
}

}  // namespace paceline
