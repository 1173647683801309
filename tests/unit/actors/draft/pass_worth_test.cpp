#include "actors/draft/request/pass_worth.hpp"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

DraftAccount priced_account(msg::SpeculationMode mode = msg::SpeculationMode::On) {
    DraftAccount account;
    account.price = {};
    account.price.generation = 1;
    account.price.mode = mode;
    account.price.candidates_max = 4;
    account.price.token_us = 1000;
    account.price.plain_us = 1000;
    account.price.row_us = 100;
    account.price.pass_share = 1;
    return account;
}

DraftTree planted_tree() {
    DraftTree tree{16};
    tree.plant(1, 0);
    return tree;
}

/// Whether the root is expanded in the next pass.
bool expands(Growth& growth, const DraftTree& tree) {
    return !growth.next(tree, 100).expand.empty();
}

}  // namespace

TEST_CASE("before a price is known every pass pays, and afterwards a draft that is off pauses") {
    const GrowthRule rule;
    const DraftTree tree = planted_tree();
    Growth growth{rule};
    DraftAccount account = priced_account(msg::SpeculationMode::Off);
    account.price.generation = 0;
    PassWorth worth{rule, false, account};
    worth.weigh(growth, tree);
    CHECK(expands(growth, tree));
    account.price.generation = 1;
    worth.weigh(growth, tree);
    CHECK_FALSE(expands(growth, tree));
}

TEST_CASE("while speculation is off a source pauses beside a model alone") {
    const GrowthRule rule;
    const DraftTree tree = planted_tree();
    DraftAccount account = priced_account(msg::SpeculationMode::Off);
    const PassWorth worth{rule, false, account};
    Growth growth{rule};
    worth.weigh_source(growth, false);
    CHECK(expands(growth, tree));
    worth.weigh_source(growth, true);
    CHECK_FALSE(expands(growth, tree));
}

TEST_CASE(
    "beside a batch of candidates that were known a draft on the target's cores makes no pass") {
    const GrowthRule rule;
    for (const bool shares_cores : {false, true}) {
        DraftTree tree = planted_tree();
        tree.add(0, 5, -0.1F, msg::Origin::Lookup);
        DraftAccount account = priced_account();
        account.shares_cores = shares_cores;
        PassWorth worth{rule, false, account};
        Growth growth{rule};
        worth.began(true);
        worth.weigh(growth, tree);
        CHECK(expands(growth, tree) == !shares_cores);
        worth.began(false);  // the target waits for this round
        Growth next{rule};
        worth.weigh(next, tree);
        CHECK(expands(next, tree));
        account.price.mode = msg::SpeculationMode::Probe;
        worth.began(true);
        Growth probed{rule};
        worth.weigh(probed, tree);
        CHECK(expands(probed, tree));
    }
}

TEST_CASE("whether a round pays is decided once, and again after a verdict") {
    const GrowthRule rule;
    const DraftTree tree = planted_tree();
    DraftAccount account = priced_account();
    PassWorth worth{rule, false, account};
    Growth growth{rule};
    worth.weigh(growth, tree);
    CHECK(expands(growth, tree));
    // Passes are dear, and none of many candidates was right.
    for (int i = 0; i < 40; ++i) {
        account.rates.learn({}, -0.1F, false);
        account.passes.passed(5000, true);
        account.passes.passed(5000, false);
    }
    worth.weigh(growth, tree);
    Growth fresh{rule};
    worth.weigh(fresh, tree);
    CHECK_FALSE(fresh.next(tree, 100).say == msg::ProposalState::Complete);
    worth.verified({});
    Growth next{rule};
    worth.weigh(next, tree);
    CHECK(next.next(tree, 100).say == msg::ProposalState::Complete);  // paused
}

TEST_CASE("the first pass of a round and the further ones are told apart, cancelled ones too") {
    const GrowthRule rule;
    DraftAccount account = priced_account();
    PassRule expected;
    PassWorth worth{rule, false, account};
    const auto same = [&] {
        return account.passes.reach_min(account.price, 0.5, true) ==
                   expected.reach_min(account.price, 0.5, true) &&
               account.passes.begins(account.price, 0.5, 100, 8) ==
                   expected.begins(account.price, 0.5, 100, 8);
    };
    for (int round = 0; round < 10; ++round) {
        worth.verified({});
        worth.passed(3000);
        worth.passed(40);
        expected.passed(3000, true);
        expected.passed(40, false);
    }
    CHECK(same());
    worth.verified({});
    worth.passed(std::nullopt);  // it was the round's first
    worth.passed(70);
    expected.passed(70, false);
    CHECK(same());
}

TEST_CASE("a path's probability is what the account expects of each of its candidates") {
    const GrowthRule rule;
    DraftAccount account;
    PassWorth worth{rule, true, account};
    for (int i = 0; i < 30; ++i)
        worth.verified(std::vector<JudgedNode>{{.log_prob = -0.1F, .right = i % 3 == 0}});
    DraftTree tree = planted_tree();
    const DraftNodeId above = tree.add(tree.root().id, 2, -0.1F, msg::Origin::Trunk).value();
    const DraftNodeId below = tree.add(above, 3, -1.0F, msg::Origin::Exit).value();
    const HitSource trunk{.origin = msg::Origin::Trunk, .drawn = true};
    const HitSource exit{.origin = msg::Origin::Exit, .drawn = true};
    const auto first = static_cast<float>(std::log(account.rates.expected(trunk, -0.1F)));
    const auto second = static_cast<float>(std::log(account.rates.expected(exit, -1.0F)));
    CHECK(worth.path_log(tree, tree.root().id) == 0.0F);
    CHECK(worth.path_log(tree, above) == first);
    CHECK(worth.path_log(tree, below) == first + second);
    CHECK(worth.expected_log(msg::Origin::Exit, -1.0F) == second);
}

TEST_CASE("a source's candidate must be worth its row only before a target that waits") {
    DraftAccount account = priced_account();
    const PassWorth waits{GrowthRule{.pace = DraftPace::Sequential}, false, account};
    CHECK(waits.least_path_log() == doctest::Approx(std::log(0.1)));
    const PassWorth ahead{GrowthRule{.pace = DraftPace::Ahead}, false, account};
    CHECK(std::isinf(ahead.least_path_log()));
    account.price.token_us = 0;
    CHECK(std::isinf(waits.least_path_log()));
}
