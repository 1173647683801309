#include "actors/account/speculation_account.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

using Micros = SpeculationAccount::Micros;
using Group = SpeculationAccount::Group;
using Mode = msg::SpeculationMode;
constexpr RequestId kOne{1};

/// One request, one batch at a time, with the account's own decisions: what a round takes and
/// gains is given.
struct Pipeline {
    explicit Pipeline(AccountOptions options) : account{options} {}

    SpeculationAccount account;
    Micros now{0};
    BatchId next{0};
    std::optional<msg::Price> price = {};
    int drafted = 0;  // rounds with candidates
    int rounds = 0;
    int tokens = 0;
    float reported = 1.0F;  // times the true cost: what verdicts say
    int slower = 1;         // times the usual cost: another machine
    Micros pause{0};        // of the next round

    /// A round with the candidates that pay. `draft_us`: of the draft, if its price lets it work;
    /// of `offered` candidates each is right with `probability`, and `right` of those sent are.
    void round(int offered, double probability, int right, int draft_us) {
        const bool drafts = account.allowed() > 0;
        if (drafts) now += Micros{draft_us};
        std::vector<double> paths;
        for (int i = 0; drafts && i < std::min(offered, account.allowed()); ++i)
            paths.push_back(std::pow(probability, i + 1));
        const auto taken = static_cast<int>(
            account.rows_of_round(paths, {.requests = 1, .context = 100}, Micros{0}));
        const auto rows = static_cast<std::uint32_t>(1 + taken);
        const BatchId batch = next;
        next = BatchId{next.value + 1};
        account.formed(std::vector{SpeculationAccount::Part{kOne, batch, taken}},
                       {.rows = rows, .requests = 1, .context = 100}, {}, 1, true, now);
        if (const auto told = account.take_price(Group::Drafts)) price = told;
        const std::uint32_t cost = static_cast<std::uint32_t>(slower) * (1000 + 60 * (rows - 1));
        now += Micros{cost + 20} + std::exchange(pause, Micros{0});
        const int accepted = std::min(taken, right);
        const auto told_cost = static_cast<std::uint32_t>(reported * static_cast<float>(cost));
        account.verified(kOne, batch, 1 + accepted, {.sum_us = told_cost, .longest_us = told_cost},
                         now);
        tokens += 1 + accepted;
        if (const auto told = account.take_price(Group::Drafts)) price = told;
        drafted += taken > 0 ? 1 : 0;
        ++rounds;
    }
};

AccountOptions on() {
    return {.controller = Controller::On};
}

/// Microseconds per token of the next `tokens` tokens with a draft that gains.
double token_us(Pipeline& pipeline, int tokens) {
    const Micros begin = pipeline.now;
    const int before = pipeline.tokens;
    while (pipeline.tokens < before + tokens) pipeline.round(4, 0.8, 3, 200);
    return static_cast<double>((pipeline.now - begin).count()) / (pipeline.tokens - before);
}

}  // namespace

TEST_CASE("the first price says that drafts rest, and later ones what time is worth") {
    Pipeline pipeline{on()};
    pipeline.round(4, 0.8, 3, 200);
    REQUIRE(pipeline.price.has_value());
    CHECK(pipeline.price->mode == Mode::Rest);
    for (int i = 0; i < 60; ++i) pipeline.round(4, 0.8, 3, 200);
    CHECK(pipeline.price->mode == Mode::On);
    CHECK(pipeline.price->plain_us == doctest::Approx(1020).epsilon(0.02));
    CHECK(pipeline.price->token_us < pipeline.price->plain_us);
    CHECK(pipeline.price->row_us == doctest::Approx(60).epsilon(0.1));
    CHECK(pipeline.price->pass_share == 1.0F);
    CHECK(pipeline.drafted > 50);
}

TEST_CASE("a draft that is never right is switched off") {
    Pipeline pipeline{on()};
    for (int i = 0; i < 256; ++i) pipeline.round(4, 0.8, 0, 400);
    CHECK(pipeline.price->mode == Mode::Off);
    CHECK(pipeline.now < Micros{256 * 1020 * 103 / 100});
}

TEST_CASE("costs that are reported a hundred times wrong, at once or later, do not last") {
    for (const float wrong : {100.0F, 0.01F}) {
        for (const int first : {0, 300}) {  // tokens before
            CAPTURE(wrong);
            CAPTURE(first);
            Pipeline healthy{on()};
            const double usual = (token_us(healthy, 300), token_us(healthy, 200));
            Pipeline pipeline{on()};
            (void)token_us(pipeline, first);
            pipeline.reported = wrong;
            for (int i = 0; i < (first == 0 ? 4 : 20); ++i) pipeline.round(4, 0.8, 3, 200);
            pipeline.reported = 1.0F;
            (void)token_us(pipeline, 250);
            CHECK(token_us(pipeline, 200) < 1.03 * usual);
        }
    }
}

TEST_CASE("a machine that becomes slower, or faster again, is followed within 250 tokens") {
    Pipeline other{on()};
    other.slower = 5;
    const double slow = (token_us(other, 300), token_us(other, 200));
    Pipeline pipeline{on()};
    const double usual = (token_us(pipeline, 300), token_us(pipeline, 200));
    pipeline.slower = 5;
    (void)token_us(pipeline, 250);
    CHECK(token_us(pipeline, 200) < 1.03 * slow);
    pipeline.slower = 1;
    (void)token_us(pipeline, 250);
    CHECK(token_us(pipeline, 200) < 1.03 * usual);
}

TEST_CASE("a text that changes within an answer costs no more than 64 tokens of it, either way") {
    const auto bad_us = [](Pipeline& pipeline, int tokens) {
        const Micros begin = pipeline.now;
        const int before = pipeline.tokens;
        while (pipeline.tokens < before + tokens) pipeline.round(4, 0.8, 0, 200);
        return static_cast<double>((pipeline.now - begin).count()) / (pipeline.tokens - before);
    };
    Pipeline healthy{on()};
    const double usual = (token_us(healthy, 400), token_us(healthy, 200));
    Pipeline pipeline{on()};
    (void)token_us(pipeline, 300);
    (void)bad_us(pipeline, 64);
    CHECK(bad_us(pipeline, 200) < 1.03 * 1020);  // of plain decoding
    // A draft that was off: the first probe is due within 250 tokens.
    (void)token_us(pipeline, 250);
    CHECK(token_us(pipeline, 200) < 1.03 * usual);
}

TEST_CASE("a probe lasts as many turns, however many requests a turn has verdicts of") {
    constexpr std::uint32_t kRequests = 4;
    SpeculationAccount account{on()};
    Micros now{0};
    std::optional<msg::Price> price;
    BatchId batch{0};
    const auto turn = [&] {
        std::vector<SpeculationAccount::Part> parts;
        for (std::uint32_t i = 1; i <= kRequests; ++i) parts.push_back({RequestId{i}, batch, 0});
        account.formed(parts, {.rows = kRequests, .requests = kRequests}, {}, kRequests, true, now);
        now += Micros{1000};
        for (const auto& part : parts)
            account.verified(part.request, batch, 1, {.sum_us = 900, .longest_us = 900}, now);
        batch = BatchId{batch.value + 1};
        if (const auto told = account.take_price(Group::Drafts)) price = told;
    };
    int probed = 0;
    int longest = 0;
    for (int i = 0; i < 2 * SpeculationAccount::kQuietTokens; ++i) {
        turn();
        REQUIRE(price.has_value());
        if (price->mode == Mode::Off || price->mode == Mode::Rest) continue;  // plain turns
        probed = price->mode == Mode::Probe ? probed + 1 : 0;
        longest = std::max(longest, probed);
    }
    CHECK(longest >= SpeculationAccount::kProbeTurns);
    CHECK(longest <= SpeculationAccount::kProbeTurns + 1);  // the price is told a turn later
}

TEST_CASE("a token that one of several requests gains is worth its part of a round") {
    const auto price_with = [](std::uint32_t requests) {
        SpeculationAccount account{on()};
        Micros now{0};
        std::optional<msg::Price> price;
        for (std::uint32_t round = 0; round < 40; ++round) {
            std::vector<SpeculationAccount::Part> parts;
            for (std::uint32_t i = 1; i <= requests; ++i)
                parts.push_back({RequestId{i}, BatchId{round}, 0});
            account.formed(parts, {.rows = requests, .requests = requests}, {}, requests, true,
                           now);
            now += Micros{1000};
            for (const auto& part : parts)
                account.verified(part.request, part.batch, 1, {.sum_us = 900, .longest_us = 900},
                                 now);
            if (const auto told = account.take_price(Group::Drafts)) price = told;
        }
        return price.value();
    };
    CHECK(price_with(1).plain_us == doctest::Approx(1000));
    CHECK(price_with(8).plain_us == doctest::Approx(125));
}

TEST_CASE("a pause of two seconds, in any round, changes nothing for long") {
    for (const int at : {0, 2, 3, 4, 50, 51}) {
        CAPTURE(at);
        Pipeline healthy{on()};
        const double usual = (token_us(healthy, 400), token_us(healthy, 200));
        Pipeline pipeline{on()};
        for (int i = 0; i < at; ++i) pipeline.round(4, 0.8, 3, 200);
        pipeline.pause = Micros{2'000'000};
        (void)token_us(pipeline, 250);
        CHECK(token_us(pipeline, 200) < 1.03 * usual);
    }
}

TEST_CASE("with the controller off everything is allowed and no price is told") {
    Pipeline pipeline{{}};
    for (int i = 0; i < 40; ++i) pipeline.round(4, 0.8, 0, 400);
    CHECK_FALSE(pipeline.price.has_value());
    CHECK(pipeline.account.allowed() == GainWatch::kAnyNumber);
}

TEST_CASE("a plain controller never allows a candidate") {
    Pipeline pipeline{{.controller = Controller::Plain}};
    for (int i = 0; i < 40; ++i) pipeline.round(4, 0.9, 4, 10);
    CHECK(pipeline.drafted == 0);
    CHECK(pipeline.price->mode == Mode::Off);
}

TEST_CASE("a guard leaves a method all its rows while they gain time, and none when they lose") {
    Pipeline gains{{.controller = Controller::Guard}};
    for (int i = 0; i < 200; ++i) gains.round(20, 0.01, 2, 0);
    CHECK(gains.drafted > 180);
    CHECK(gains.price->mode == Mode::Probe);  // its own rules decide
    CHECK(gains.account.rows_of_round(std::vector<double>(20, 0.001), {.requests = 1}, {}) == 20);
    Pipeline loses{{.controller = Controller::Guard}};
    for (int i = 0; i < 256; ++i) loses.round(40, 0.01, 0, 0);
    CHECK(loses.price->mode == Mode::Off);
    CHECK(loses.now < Micros{256 * 1020 * 103 / 100});
}

TEST_CASE("proposers that have not been seen for long are probed") {
    Pipeline pipeline{on()};
    int probes = 0;
    const auto rounds_of = [&](int rounds) {
        for (int i = 0; i < rounds; ++i) {
            pipeline.round(0, 0.5, 0, 0);  // the draft itself does not think that it pays
            probes += pipeline.price->mode == Mode::Probe ? 1 : 0;
        }
    };
    rounds_of(SpeculationAccount::kQuietTokens - 20);
    CHECK(probes == 0);
    rounds_of(60);
    CHECK(probes > 0);
    // What it proposes in the probe is seen: no other one follows at once.
    const std::vector<JudgedNode> seen{{.origin = msg::Origin::Trunk, .right = false}};
    rounds_of(SpeculationAccount::kProbeTurns);
    pipeline.account.judged(seen, false);
    probes = 0;
    rounds_of(SpeculationAccount::kQuietTokens / 2);
    CHECK(probes == 0);
}

TEST_CASE("a price that has hardly changed is not told again, but to a new receiver it is") {
    Pipeline pipeline{on()};
    for (int i = 0; i < 60; ++i) pipeline.round(4, 0.8, 3, 200);
    CHECK_FALSE(pipeline.account.take_price(Group::Drafts).has_value());
    pipeline.account.forget_told(Group::Drafts);
    CHECK(pipeline.account.take_price(Group::Drafts).has_value());
}

TEST_CASE("a draft that runs ahead pays for the time by which it slows the batches") {
    Pipeline pipeline{{.controller = Controller::On, .sequential = false}};
    for (int i = 0; i < 60; ++i) pipeline.round(4, 0.8, 3, 0);
    CHECK(pipeline.price->pass_share == doctest::Approx(0.0).epsilon(0.05));
}

TEST_CASE("verdicts of another request, of an older one and of no batch at all change nothing") {
    Pipeline pipeline{on()};
    for (int i = 0; i < 60; ++i) pipeline.round(4, 0.8, 3, 200);
    const double gain = pipeline.account.turns().gain();
    pipeline.account.verified(RequestId{9}, BatchId{1}, 5, {.sum_us = 9, .longest_us = 9},
                              Micros{1});
    pipeline.account.verified(kOne, BatchId{0}, 5, {.sum_us = 9, .longest_us = 9}, Micros{1});
    CHECK(pipeline.account.turns().gain() == gain);
}

TEST_CASE(
    "as many rows of a prompt join as the batch's time allows, by what they were measured to "
    "cost") {
    SpeculationAccount account{{.controller = Controller::On}};
    const BatchSize size{.rows = 8, .requests = 8, .context = 800};
    Micros now{1};
    BatchId batch{1};
    const auto round = [&](const PromptRows& prompts, Micros took, bool known) {
        account.formed(std::vector{SpeculationAccount::Part{RequestId{1}, batch, 0}}, size, prompts,
                       8, true, now);
        now += took;
        const auto us = static_cast<std::uint32_t>(took.count());
        account.verified(RequestId{1}, batch, 1,
                         known ? msg::BatchCost{.sum_us = us, .longest_us = us} : msg::BatchCost{},
                         now);
        now += Micros{1};
        batch = BatchId{batch.value + 1};
    };
    CHECK(account.rows_beside(size, 0, 2.0) == 0);
    for (int i = 0; i < 20; ++i) round({}, Micros{10'000}, true);
    // Of a batch with a prompt the jobs' own time is not known, its way is.
    round({.rows = 20, .context = 0}, Micros{20'000}, false);
    round({.rows = 10, .context = 3000}, Micros{30'000}, false);
    CHECK(account.rows_beside(size, 0, 2.0) == 20);
    CHECK(account.rows_beside(size, 0, 3.0) == 40);
    CHECK(account.rows_beside(size, 3000, 2.0) == 5);
    // Batches whose time is not the rows' own teach nothing.
    for (int i = 0; i < 20; ++i)
        round({.rows = 20, .context = 0, .teaches = false}, Micros{900'000}, false);
    CHECK(account.rows_beside(size, 0, 2.0) == 20);
    // A batch that was faster than expected does not make rows free for good.
    round({.rows = 20, .context = 100'000}, Micros{9'000}, false);
    for (int i = 0; i < 60; ++i) round({.rows = 20, .context = 100'000}, Micros{20'000}, false);
    CHECK(account.rows_beside(size, 100'000, 2.0) <= 22);
}
