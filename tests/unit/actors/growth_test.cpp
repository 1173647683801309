#include "actors/decoding/growth.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/stop_policy.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

/// A tree and its growth, with a model that says 0.6 for token 0, 0.3 for token 1 and so on
/// after every node; a log of what was expanded (as paths of digits) and said.
struct Draft {
    explicit Draft(const GrowthRule& by) : rule{by}, growth{by}, tree{512} { tree.plant(9, 0); }
    [[nodiscard]] std::string name(DraftNodeId id) const {
        std::string digits = "r";
        for (const DraftNode* step : tree.path(id)) {
            if (step->id != tree.root().id) digits += std::to_string(step->token);
        }
        return digits;
    }
    /// One step: the pass that it asks for, or what it says; empty when it has nothing to do.
    std::string step() {
        const Growth::Step step = growth.next(tree, room);
        if (step.say) return std::to_string(static_cast<int>(*step.say));
        if (step.waits_for_candidates) return "wait";
        std::string nodes;
        for (const DraftNodeId id : step.expand) nodes += (nodes.empty() ? "" : " ") + name(id);
        for (const DraftNodeId id : step.expand) {
            std::vector<Candidate> candidates;
            float p = 0.6F;
            for (TokenId t = 0; t <= rule.own_alternatives; ++t, p /= 2) {
                candidates.push_back({t, std::log(p)});
            }
            tree.expand(id, candidates);
        }
        if (!step.expand.empty()) growth.passed();
        return nodes;
    }
    std::vector<std::string> steps(int most) {
        std::vector<std::string> log;
        while (most-- > 0) {
            log.push_back(step());
            if (log.back().empty() || log.back() == "wait") break;
        }
        return log;
    }
    void verdict(std::vector<TokenId> tokens, std::int32_t could) {
        const bool prepared = tree.follow(tokens).prepared;
        growth.verified(static_cast<std::int32_t>(tokens.size()) - 1, could, prepared);
    }
    /// An exit proposes `token` after `parent` with probability `p`.
    void name_behind(const std::string& parent, TokenId token, float p) {
        for (const DraftNode& node : std::vector(tree.nodes().begin(), tree.nodes().end())) {
            if (name(node.id) != parent) continue;
            (void)tree.add(node.id, token, std::log(p), msg::Origin::Exit);
        }
    }
    GrowthRule rule;
    Growth growth;
    DraftTree tree;
    std::int32_t room = 100;
};

using Log = std::vector<std::string>;
const std::string kGrowing = "0";
const std::string kHalfway = "1";
const std::string kComplete = "2";

}  // namespace

TEST_CASE(
    "taking turns: gamma tokens of the trunk, Complete, and the next turn after the verdict") {
    Draft draft{{.pace = DraftPace::Sequential, .gamma = 3}};
    CHECK(draft.steps(9) == Log{"r", "r0", "r00", kComplete, ""});
    draft.verdict({0, 0, 5}, 3);
    CHECK(draft.steps(9) == Log{"r", "r0", "r00", kComplete, ""});
    draft.verdict({0, 0}, 3);  // what is left below the new root is not drafted again
    CHECK(draft.steps(9) == Log{"r0", "r00", kComplete, ""});
}

TEST_CASE("a chain ends where the thresholds of the moment say") {
    for (const DraftPace pace : {DraftPace::Sequential, DraftPace::Ahead, DraftPace::Lockstep}) {
        Draft draft{{.pace = pace, .gamma = 5}};
        draft.growth.stop_at({.product_min = 0.4F});  // r0 has 0.6, r00 0.36
        const Log log = draft.steps(3);
        CHECK(log[0] == "r");
        CHECK(log[1] == "r0");
        CHECK(log[2] == kComplete);
        draft.growth.stop_at({.confidence_min = 0.7F});
        draft.verdict({9}, 2);
        CHECK(draft.steps(1) == Log{"r"});
        CHECK(draft.steps(1) == Log{kComplete});
        draft.growth.stop_at({.confidence_min = 0.5F});
        draft.verdict({9}, 1);
        CHECK(draft.steps(4) == Log{"r", "r0", "r00", "r000"});
    }
}

TEST_CASE("the room that is left shortens a turn") {
    Draft narrow{{.pace = DraftPace::Sequential, .gamma = 8}};
    narrow.room = 1;
    CHECK(narrow.steps(9) == Log{"r", kComplete, ""});
    Draft silent{{.pace = DraftPace::Sequential, .gamma = 8}};
    silent.room = 0;
    CHECK(silent.steps(9) == Log{""});
}

TEST_CASE("turns with trees: runners-up are grown beside the trunk, the most probable first") {
    Draft draft{{.pace = DraftPace::Sequential, .gamma = 3, .width = 3, .own_alternatives = 1}};
    CHECK(draft.steps(9) == Log{"r", "r0 r1", "r00 r01 r10", kComplete, ""});
    Draft tight{{.pace = DraftPace::Sequential,
                 .gamma = 3,
                 .width = 3,
                 .own_alternatives = 1,
                 .branch_budget = 1}};
    CHECK(tight.steps(9) == Log{"r", "r0 r1", "r00", kComplete, ""});
}

TEST_CASE("FOLD on turns: after Complete the exit's candidates are grown until the verdict") {
    Draft draft{{.pace = DraftPace::Sequential, .gamma = 2, .width = 2, .exit_alternatives = 2}};
    CHECK(draft.steps(9) == Log{"r", "r0", kComplete, ""});
    draft.name_behind("r", 7, 0.3F);
    draft.growth.candidates_arrived();
    CHECK(draft.growth.streams());
    CHECK(draft.steps(9) == Log{"r7", "r70", "r700", ""});
    draft.verdict({7}, 2);
    CHECK(draft.steps(9) == Log{kComplete, ""});  // the turn was prepared
}

TEST_CASE("PEARL, event-driven: the trunk goes on below what was sent, up to gamma") {
    Draft draft{{.pace = DraftPace::Ahead, .gamma = 4}};
    CHECK(draft.steps(3) == Log{"r", "r0", "r00"});
    draft.verdict({0}, 0);
    CHECK(draft.steps(9) == Log{"r00", "r000", kComplete, ""});
    draft.verdict({3}, 2);
    CHECK(draft.steps(1) == Log{"r"});
}

TEST_CASE("FOLD, event-driven: whatever is most probable comes next, name or trunk") {
    Draft draft{{.pace = DraftPace::Ahead, .gamma = 8, .exit_alternatives = 4, .branch_budget = 2}};
    CHECK(draft.steps(3) == Log{"r", "r0", "r00"});
    draft.name_behind("r", 7, 0.35F);
    draft.growth.candidates_arrived();
    CHECK(draft.steps(4) == Log{"r7", "r000", "r70", "r0000"});  // 0.35, 0.216, 0.21, 0.13
    CHECK(draft.steps(1) == Log{"r00000"});                      // the budget is spent
}

TEST_CASE("nothing is grown after an unlikely token, or at the end of an unlikely path") {
    Draft draft{{.pace = DraftPace::Sequential, .gamma = 8, .draft_reach_min = 0.2F}};
    CHECK(draft.steps(9) == Log{"r", "r0", "r00", "r000", kComplete, ""});  // 0.6^3 = 0.216
    Draft confident{{.pace = DraftPace::Sequential, .gamma = 8, .confidence_min = 0.7F}};
    CHECK(confident.steps(9) == Log{"r", kComplete, ""});
}

TEST_CASE("a chain ends where another pass does not pay") {
    Draft draft{{.pace = DraftPace::Sequential, .gamma = 8, .draft_reach_min = 0.2F}};
    draft.growth.weigh({.least = 0.5F});
    CHECK(draft.steps(9) == Log{"r", "r0", kComplete, ""});  // 0.6, and 0.6^2 = 0.36
    draft.verdict({5}, 2);
    draft.growth.weigh({.least = 0.7F});
    CHECK(draft.steps(9) == Log{"r", kComplete, ""});  // the first pass says how sure it is
    draft.verdict({5}, 1);
    draft.growth.weigh({});  // the rule's own least stays
    CHECK(draft.steps(9) == Log{"r", "r0", "r00", "r000", kComplete, ""});
}

TEST_CASE("what a pass is worth is decided by the calibrated paths, if there are any") {
    DraftTree tree{64};
    tree.plant(9, 0);
    const DraftNodeId first = *tree.add(tree.root().id, 1, std::log(0.9F), msg::Origin::Trunk);
    const GrowthRule rule{.pace = DraftPace::Sequential, .gamma = 8};
    tree.close(tree.root().id);
    const GrowthView view{.trunk_depth = 8, .branch_depth = 8, .trunk_first = true};
    CHECK(nodes_to_expand(tree, rule, view, {.least = 0.5F}) == std::vector{first});
    const std::vector<float> doubtful{0.0F, std::log(0.3F)};
    CHECK(nodes_to_expand(tree, rule, view, {.least = 0.5F, .paths_log = doubtful}).empty());
}

TEST_CASE("PEARL, lockstep: gamma steps a round, the next one begins with the verdict") {
    Draft draft{{.pace = DraftPace::Lockstep, .gamma = 2}};
    CHECK(draft.steps(9) == Log{"r", "r0", kComplete, ""});
    draft.verdict({0}, 0);  // all right: the round goes on at the trunk's end
    CHECK(draft.steps(9) == Log{"r0", "r00", kComplete, ""});
    draft.verdict({5}, 1);  // a miss: it starts anew
    CHECK(draft.steps(9) == Log{"r", "r0", kComplete, ""});
}

TEST_CASE("lockstep with a slow draft: the round is completed after the verdict, then the next") {
    Draft draft{{.pace = DraftPace::Lockstep, .gamma = 3}};
    CHECK(draft.steps(1) == Log{"r"});
    draft.verdict({0}, 0);
    CHECK(draft.growth.round_root() == 0);
    CHECK(draft.steps(3) == Log{"r", "r0", kComplete});
    CHECK(draft.steps(4) == Log{"r00", "r000", "r0000", kComplete});
    CHECK(draft.growth.round_root() == 1);
    CHECK(draft.step().empty());
    Draft missed{{.pace = DraftPace::Lockstep, .gamma = 3}};
    CHECK(missed.steps(1) == Log{"r"});
    missed.verdict({5}, 0);
    CHECK(missed.steps(2) == Log{kComplete, "r"});
}

TEST_CASE(
    "FOLD, lockstep: gamma1 steps, Halfway, the candidates, then trunk and branches together") {
    Draft draft{{.pace = DraftPace::Lockstep,
                 .gamma = 4,
                 .gamma_early = 2,
                 .width = 3,
                 .exit_alternatives = 2}};
    CHECK(draft.steps(9) == Log{"r", "r0", kHalfway, "wait"});
    draft.name_behind("r", 7, 0.5F);
    draft.name_behind("r0", 8, 0.1F);
    draft.growth.candidates_arrived();
    CHECK(draft.steps(9) == Log{"r00 r7 r08", "r000 r70 r080", kComplete, ""});
    draft.verdict({7}, 1);
    CHECK(draft.steps(9) == Log{"r00", "r000", kHalfway, "wait"});
    draft.growth.waited_out();
    CHECK(draft.steps(9) == Log{"r0000", "r00000", kComplete, ""});
    draft.verdict({0}, 1);
    draft.growth.candidates_arrived();  // early candidates: nothing to wait for
    CHECK(draft.steps(3) == Log{"r00000", "r000000", kHalfway});
    CHECK(draft.step() == "r0000000");
}

TEST_CASE("as Correct, only what is not of the other draft's trunk is grown, once it is proposed") {
    for (const DraftPace pace : {DraftPace::Sequential, DraftPace::Ahead, DraftPace::Lockstep}) {
        Draft draft{{.pace = pace,
                     .part = GrowthPart::Alternatives,
                     .gamma = 8,
                     .gamma_early = 6,
                     .width = 2,
                     .exit_alternatives = 2}};
        const DraftNodeId a = *draft.tree.add(draft.tree.root().id, 0, -0.1F, msg::Origin::Trunk);
        (void)draft.tree.add(a, 0, -0.1F, msg::Origin::Trunk);
        CHECK(draft.steps(9) == Log{""});
        draft.name_behind("r0", 5, 0.9F);
        draft.growth.candidates_arrived();
        CHECK(draft.steps(2) == Log{"r05", "r050"});
        CHECK(draft.growth.streams());
        CHECK((draft.step().empty()) ==
              (pace == DraftPace::Lockstep));  // its gamma2 steps are done
    }
}

TEST_CASE("as Draft beside a Correct, only the trunk is grown") {
    Draft draft{{.pace = DraftPace::Ahead,
                 .part = GrowthPart::Trunk,
                 .gamma = 3,
                 .width = 4,
                 .own_alternatives = 2}};
    CHECK(draft.steps(9) == Log{"r", "r0", "r00", kComplete, ""});
}

TEST_CASE("the nodes of a pass are those that the definition names, for random trees and rules") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        DraftTree tree{512};
        tree.plant(1, 5);
        for (int i = 0; i < 60; ++i) {
            const DraftNodeId at = tree.nodes()[random() % tree.nodes().size()].id;
            (void)tree.add(at, static_cast<TokenId>(random() % 9),
                           -static_cast<float>(1 + random() % 1000) / 400.0F,
                           random() % 4 == 0 ? msg::Origin::Exit : msg::Origin::Trunk);
            if (random() % 3 == 0) tree.close(at);
        }
        const GrowthRule rule{.confidence_min = random() % 2 == 0 ? 0.0F : 0.3F,
                              .width = 1 + static_cast<std::int32_t>(random() % 8),
                              .branch_budget = static_cast<std::int32_t>(random() % 30),
                              .draft_reach_min = 0.02F};
        const GrowthView view{.trunk_depth = static_cast<std::int32_t>(random() % 6),
                              .branch_depth = static_cast<std::int32_t>(random() % 6),
                              .trunk_first = random() % 2 == 0};
        const std::vector<DraftNodeId> trunk = tree.trunk();
        std::vector<DraftNodeId> expected;
        std::int32_t budget = rule.branch_budget;
        const auto on_trunk = [&](DraftNodeId id) {
            return std::find(trunk.begin(), trunk.end(), id) != trunk.end();
        };
        for (const DraftNode& node : tree.nodes()) {
            if (node.expanded && !on_trunk(node.id)) --budget;
        }
        // Take the best of what is left, again and again.
        while (static_cast<std::int32_t>(expected.size()) < rule.width) {
            const DraftNode* best = nullptr;
            for (const DraftNode& node : tree.nodes()) {
                const bool is_trunk = on_trunk(node.id);
                const bool taken =
                    std::find(expected.begin(), expected.end(), node.id) != expected.end();
                const bool root = node.id == tree.root().id;
                if (taken || node.expanded || (!is_trunk && budget <= 0)) continue;
                if (node.position - 5 >= (is_trunk ? view.trunk_depth : view.branch_depth))
                    continue;
                if (!root && std::exp(node.log_prob) < rule.confidence_min) continue;
                if (!root && std::exp(node.path_log_prob) < rule.draft_reach_min) continue;
                const bool favoured = view.trunk_first && expected.empty();
                const auto rank = [&](const DraftNode& n) {
                    return (favoured && on_trunk(n.id) ? 1000.0F : 0.0F) + n.path_log_prob;
                };
                if (best == nullptr || rank(node) > rank(*best)) best = &node;
            }
            if (best == nullptr) break;
            if (!on_trunk(best->id)) --budget;
            expected.push_back(best->id);
        }
        CHECK(nodes_to_expand(tree, rule, view) == expected);
    }
}

TEST_CASE("assisted generation's length: two more when all were right, else one less, at least 1") {
    DraftLength length{5, true};
    length.verified(5, 5);
    CHECK(length.now() == 7);
    length.verified(6, 7);
    CHECK(length.now() == 6);
    for (int i = 0; i < 20; ++i) length.verified(0, 4);
    CHECK(length.now() == 1);
    length.verified(0, 0);  // nothing was proposed: nothing is learned
    CHECK(length.now() == 1);
    for (int i = 0; i < 40; ++i) length.verified(length.now(), length.now());
    CHECK(length.now() == static_cast<std::int32_t>(kGammaMax));
    DraftLength fixed{5, false};
    fixed.verified(5, 5);
    CHECK(fixed.now() == 5);
}

TEST_CASE("a draft that is paused expands nothing, and the target must not wait for it") {
    for (const DraftPace pace : {DraftPace::Sequential, DraftPace::Ahead}) {
        Draft draft{{.pace = pace, .gamma = 3}};
        draft.growth.pause(true);
        CHECK(draft.steps(9) == Log{kComplete, ""});
        draft.growth.pause(false);
        draft.verdict({5}, 0);
        CHECK(draft.steps(9) == Log{"r", "r0", "r00", kComplete, ""});
    }
}

TEST_CASE("no path gets longer than the limit of candidates") {
    Draft draft{{.pace = DraftPace::Sequential, .gamma = 8}};
    draft.growth.limit(2);
    CHECK(draft.steps(9) == Log{"r", "r0", kComplete, ""});
}

TEST_CASE("a chain stops after an improbable token, or when the product gets too small") {
    const ChainStop confidence{.confidence_min = 0.6F};
    CHECK(confidence.ends_behind(std::log(0.59F), 0.0F));
    CHECK_FALSE(confidence.ends_behind(std::log(0.61F), -50.0F));
    const ChainStop product{.product_min = 0.5F};
    float path_log_prob = 0.0F;
    int kept = 0;
    while (!product.ends_behind(std::log(0.8F), path_log_prob)) {
        path_log_prob += std::log(0.8F);
        ++kept;
    }
    CHECK(kept == 4);  // 0.8^4 = 0.41 is the first below 0.5: kept, nothing after it
    CHECK_FALSE(ChainStop{}.ends_behind(-99.0F, -99.0F));
}
