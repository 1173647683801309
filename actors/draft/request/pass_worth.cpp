#include "actors/draft/request/pass_worth.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ipc/base/limits.hpp"

namespace paceline {

PassWorth::PassWorth(const GrowthRule& rule, bool drawn, DraftAccount& account)
    : account_{account},
      drawn_{drawn},
      sequential_{rule.pace == DraftPace::Sequential},
      weighs_{!rule.adaptive && !rule.thompson && !rule.threshold_adapts &&
              rule.confidence_min <= 0.0F} {}

void PassWorth::verified(std::span<const JudgedNode> judged) {
    for (const JudgedNode& node : judged) {
        account_.rates.learn({.origin = node.origin, .drawn = drawn_}, node.log_prob, node.right);
    }
    begins_.reset();
    first_pass_ = true;
}

void PassWorth::passed(std::optional<double> micros) {
    const bool first = std::exchange(first_pass_, false);
    if (micros) account_.passes.passed(*micros, first);
}

/// A draft that runs ahead must be deeper than the batch: the target takes the rest in the next
/// one.
void PassWorth::limit(Growth& growth) const {
    if (sequential_)
        growth.limit(static_cast<std::int32_t>(std::min(account_.price.candidates_max, kGammaMax)));
}

void PassWorth::weigh_source(Growth& growth, bool rests) const {
    if (!known()) return;
    limit(growth);
    growth.pause(account_.off() && rests);
}

void PassWorth::weigh(Growth& growth, const DraftTree& tree) {
    if (!known()) return;
    limit(growth);
    const msg::Price& price = account_.price;
    const HitSource own{.origin = msg::Origin::Trunk, .drawn = drawn_};
    const double hit = account_.rates.mean(own);
    const bool probe = price.mode == msg::SpeculationMode::Probe;
    if (!begins_ || probe || !sequential_) {
        begins_ = account_.passes.begins(price, hit, account_.rates.tries(own), growth.gamma());
    }
    // On the target's cores a pass beside its batch takes the time that it may save later.
    const bool delays = sequential_ && account_.shares_cores && prepared_ && !probe;
    growth.pause(account_.off() || (weighs_ && (delays || !*begins_)));
    if (!weighs_ || probe) return growth.weigh({});
    growth.weigh({.least = static_cast<float>(account_.passes.reach_min(price, hit, sequential_)),
                  .paths_log = paths_log(tree)});
}

float PassWorth::path_log(const DraftTree& tree, DraftNodeId node) const {
    const auto nodes = tree.nodes();
    const auto at = std::find_if(nodes.begin(), nodes.end(),
                                 [node](const DraftNode& other) { return other.id == node; });
    return paths_log(tree)[static_cast<std::size_t>(at - nodes.begin())];
}

/// Of all nodes of the tree.
std::vector<float> PassWorth::paths_log(const DraftTree& tree) const {
    const auto nodes = tree.nodes();
    std::vector<float> paths(nodes.size(), 0.0F);
    for (std::size_t i = 1; i < nodes.size(); ++i) {
        const auto above = std::lower_bound(
            nodes.begin(), nodes.end(), nodes[i].parent,
            [](const DraftNode& node, DraftNodeId parent) { return node.id < parent; });
        paths[i] = paths[static_cast<std::size_t>(above - nodes.begin())] +
                   expected_log(nodes[i].origin, nodes[i].log_prob);
    }
    return paths;
}

float PassWorth::expected_log(msg::Origin origin, float log_prob) const {
    const double own = account_.rates.expected({.origin = origin, .drawn = drawn_}, log_prob);
    return static_cast<float>(std::log(own));
}

float PassWorth::least_path_log() const {
    const msg::Price& price = account_.price;
    if (!sequential_ || price.token_us <= 0.0F) return std::log(0.0F);
    return std::log(price.row_us / price.token_us);
}

}  // namespace paceline
