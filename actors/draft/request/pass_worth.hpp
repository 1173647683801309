// PassWorth: what another pass, and a candidate, is worth to one request, by the stage's account:
// its candidates are judged by verdicts, and its passes take time.
//
// Where a published rule ends the chains, or before a price is known, every pass pays.
// Borrows the account. Threads: the actor's loop.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/draft_tree.hpp"
#include "actors/decoding/growth.hpp"
#include "actors/decoding/growth_rule.hpp"
#include "actors/draft/draft_account.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

class PassWorth {
public:
    /// `drawn`: the text has a temperature.
    PassWorth(const GrowthRule& rule, bool drawn, DraftAccount& account);

    /// A verdict has judged these candidates: a round begins.
    void verified(std::span<const JudgedNode> judged);
    /// Whether there are candidates for the new root from before: the target, which waits where
    /// there are none, verifies them at once.
    void began(bool prepared) { prepared_ = prepared; }
    /// A pass has taken so long, of which this is the request's share; nothing: it was cancelled.
    void passed(std::optional<double> micros);

    /// What the next growth.next() expands with a model that serves the text.
    void weigh(Growth& growth, const DraftTree& tree);
    /// The same with a source alone: it answers at once. `rests`: while nothing is speculated; else
    /// its candidates are compared with the text all the same.
    void weigh_source(Growth& growth, bool rests) const;

    /// Log probability of a node's path, as far as earlier candidates have shown it.
    [[nodiscard]] float path_log(const DraftTree& tree, DraftNodeId node) const;
    /// Of a candidate after its parent.
    [[nodiscard]] float expected_log(msg::Origin origin, float log_prob) const;
    /// Log probability of a path below which a source's candidate is not taken where a model goes
    /// on below those that are. -inf: any is taken.
    [[nodiscard]] float least_path_log() const;

private:
    void limit(Growth& growth) const;
    [[nodiscard]] bool known() const { return account_.price.generation > 0; }
    [[nodiscard]] std::vector<float> paths_log(const DraftTree& tree) const;

    DraftAccount& account_;
    bool drawn_;
    bool sequential_;
    bool weighs_;                 // no published rule ends the chains
    std::optional<bool> begins_;  // whether the first pass of this round pays
    bool prepared_ = false;       // this round was when it began
    bool first_pass_ = true;      // none has ended in this round
};

}  // namespace paceline
