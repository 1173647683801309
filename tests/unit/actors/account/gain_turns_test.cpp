#include "actors/account/gain_turns.hpp"

#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

using Micros = GainTurns::Micros;

/// Requests that are verified together, all in one batch.
struct Scene {
    explicit Scene(std::size_t requests) : rounds(requests), since(requests) {}

    /// A batch: every request begins a round, a part of them drafts, all are verified. A drafted
    /// round commits `tokens` and costs `cost` plain batches more than the batch itself.
    void batch(double cost, int tokens) {
        bool any = false;
        for (std::size_t i = 0; i < rounds.size(); ++i) {
            rounds[i] = turns.begin(rounds.size(), since[i]);
            any = any || rounds[i].drafts();
            drafted += rounds[i].drafts() ? 1 : 0;
        }
        now += Micros{any ? static_cast<std::int64_t>(10'000 * (1.0 + cost)) : 10'000};
        for (std::size_t i = 0; i < rounds.size(); ++i) {
            const bool drafts = rounds[i].drafts();
            turns.verified(rounds[i], drafts ? tokens : 1, drafts ? 1 : 0, now);
            since[i] = now;
        }
    }
    void batches(int count, double cost, int tokens) {
        for (int i = 0; i < count; ++i) batch(cost, tokens);
    }

    GainTurns turns{true};
    std::vector<GainTurns::Round> rounds;
    std::vector<Micros> since;
    Micros now{0};
    int drafted = 0;
};

}  // namespace

TEST_CASE("requests that are verified together draft together, or none of them does") {
    for (const std::size_t requests : {1U, 3U, 8U}) {
        Scene scene{requests};
        for (int i = 0; i < 200; ++i) {
            const int before = scene.drafted;
            scene.batch(0.5, 2);
            const int now = scene.drafted - before;
            CHECK((now == 0 || now == static_cast<int>(requests)));
        }
        CHECK(scene.drafted > 0);
    }
}

TEST_CASE(
    "drafts that cost more than they gain are given up, however many requests share a batch") {
    for (const std::size_t requests : {1U, 2U, 8U}) {
        CAPTURE(requests);
        Scene scene{requests};
        scene.batches(100, 1.5, 2);
        const int before = scene.drafted;
        scene.batches(400, 1.5, 2);
        CHECK(scene.drafted - before < static_cast<int>(400 * requests) / 20);
        CHECK(scene.turns.watch(requests).gain() < 1.0);
        CHECK(!scene.turns.watch(requests).drafting());
    }
}

TEST_CASE("drafts that gain go on, however many requests share a batch") {
    for (const std::size_t requests : {1U, 2U, 8U}) {
        CAPTURE(requests);
        Scene scene{requests};
        scene.batches(100, 0.5, 3);
        const int before = scene.drafted;
        scene.batches(400, 0.5, 3);
        CHECK(scene.drafted - before > static_cast<int>(380 * requests));
        CHECK(scene.turns.watch(requests).gain() > 1.8);
    }
}

TEST_CASE("a number of requests for which drafts do not pay does not stop them for another") {
    GainTurns turns{true};
    Micros now{0};
    int drafted_alone = 0;
    const auto batch = [&](std::size_t requests, double cost) {
        std::vector<GainTurns::Round> rounds(requests);
        for (GainTurns::Round& round : rounds) round = turns.begin(requests, now);
        const bool drafts = rounds.front().drafts();
        now += Micros{drafts ? static_cast<std::int64_t>(10'000 * (1.0 + cost)) : 10'000};
        for (const GainTurns::Round& round : rounds)
            turns.verified(round, drafts ? 2 : 1, drafts ? 1 : 0, now);
        if (requests == 1) drafted_alone += drafts ? 1 : 0;
    };
    for (int i = 0; i < 300; ++i) batch(8, 3.0);
    CHECK(!turns.watch(8).drafting());
    for (int i = 0; i < 300; ++i) batch(1, 0.2);
    CHECK(drafted_alone > 270);
}

TEST_CASE("a turn that shares its batch with a prompt is not counted") {
    Scene scene{2};
    scene.batches(50, 0.2, 3);
    const double gain = scene.turns.watch(2).gain();
    for (int i = 0; i < 50; ++i) {
        for (std::size_t r = 0; r < 2; ++r) scene.rounds[r] = scene.turns.begin(2, scene.now);
        scene.turns.disturbed();
        scene.now += Micros{1'000'000};
        for (std::size_t r = 0; r < 2; ++r) {
            scene.turns.verified(scene.rounds[r], 1, 1, scene.now);
            scene.since[r] = scene.now;
        }
    }
    scene.batches(2, 0.2, 3);
    CHECK(scene.turns.watch(2).gain() == doctest::Approx(gain).epsilon(0.05));
    CHECK(scene.turns.watch(2).drafting());
}

TEST_CASE("the time in which nothing was decoded belongs to no turn") {
    Scene scene{1};
    scene.batches(50, 0.2, 3);
    const double gain = scene.turns.watch(1).gain();
    // A request that is stopped before its verdict; the next one comes a minute later.
    (void)scene.turns.begin(1, scene.now);
    scene.now += Micros{60'000'000};
    scene.since[0] = scene.now;
    scene.batches(5, 0.2, 3);
    CHECK(scene.turns.watch(1).gain() == doctest::Approx(gain).epsilon(0.05));
}

TEST_CASE("a job's time belongs to no turn, and is paid from the budget") {
    Scene scene{1};
    scene.batches(100, 0.5, 2);
    const double gain = scene.turns.watch(1).gain();
    CHECK(scene.turns.affords(1, Micros{100'000}));
    scene.now += Micros{100'000};
    scene.turns.job_ended(1, Micros{100'000}, scene.now);
    scene.batch(0.5, 2);
    CHECK(scene.turns.watch(1).gain() == doctest::Approx(gain).epsilon(0.01));
    // The budget was full, and ten plain tokens of it are gone.
    CHECK(scene.turns.affords(1, Micros{130'000}));
    CHECK(!scene.turns.affords(1, Micros{160'000}));
}

TEST_CASE("a request that cannot draft does not spoil the turn of the others") {
    Scene scene{2};
    for (int i = 0; i < 200; ++i) {
        scene.turns.verified({}, 1, 0, scene.now);
        scene.batch(0.5, 3);
    }
    CHECK(scene.turns.watch(2).gain() > 1.5);
}

TEST_CASE("without auto-off every round is drafted") {
    GainTurns turns{false};
    for (int i = 0; i < 10; ++i) {
        const GainTurns::Round round = turns.begin(1, Micros{0});
        CHECK(round.candidates == GainWatch::kAnyNumber);
        turns.verified(round, 1, 1, Micros{1'000'000 * (i + 1)});
    }
}
