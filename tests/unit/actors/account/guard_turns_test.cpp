#include "actors/account/guard_turns.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

using Micros = GuardTurns::Micros;

/// A pipeline with one batch on its way: every round takes its time and commits its tokens.
struct Rounds {
    GuardTurns turns;
    Micros now{0};
    int speculative = 0;
    int plain = 0;
    Micros spent{0};
    int tokens = 0;

    /// A plain round takes 1000 us; a speculative one `took` for `gained` tokens.
    void run(int rounds, int took, int gained, std::size_t requests = 1) {
        for (int i = 0; i < rounds; ++i) {
            const auto tag = turns.formed(requests, true, now);
            const int allowed = turns.allowed();
            const Micros time{allowed > 0 ? took : 1000};
            now += time;
            spent += time;
            (allowed > 0 ? speculative : plain) += 1;
            for (std::size_t r = 0; r < requests; ++r) {
                const int count = allowed > 0 ? gained : 1;
                tokens += count;
                turns.verified(tag, count, allowed > 0 ? std::min(allowed, 4) : 0, false, now);
            }
        }
    }
};

/// Times plain decoding, of all turns.
double overall_gain(const GuardTurns& turns) {
    return turns.plain_took_us() / turns.took_us();
}

}  // namespace

TEST_CASE("the first turns are plain, so that there is something to compare with") {
    Rounds rounds;
    rounds.run(GuardTurns::kPlainFirst, 500, 2);
    CHECK(rounds.speculative == 0);
    CHECK(rounds.turns.plain_token() == Micros{1000});
    rounds.run(3, 1100, 3);
    CHECK(rounds.speculative > 0);
}

TEST_CASE("speculation that gains goes on, with a plain turn now and then") {
    Rounds rounds;
    rounds.run(400, 1200, 3);
    CHECK(rounds.turns.speculates());
    CHECK(rounds.plain < 20);
    CHECK(rounds.turns.gain() == doctest::Approx(2.5).epsilon(0.05));
}

TEST_CASE("the overall gain is of all turns, the plain ones too") {
    Rounds rounds;
    rounds.run(400, 1200, 3);
    const double without = 1000.0 * rounds.tokens;
    CHECK(overall_gain(rounds.turns) ==
          doctest::Approx(without / static_cast<double>(rounds.spent.count())).epsilon(0.01));
    Rounds losing;
    losing.run(400, 3000, 1);
    CHECK(overall_gain(losing.turns) > 0.95);
    CHECK(overall_gain(losing.turns) < 1.0);
}

TEST_CASE("a pause of the machine is not taken for the cost of speculation") {
    Rounds rounds;
    rounds.run(100, 1200, 3);
    const double before = overall_gain(rounds.turns);
    const auto tag = rounds.turns.formed(1, true, rounds.now);
    rounds.now += Micros{10'000'000};
    rounds.turns.verified(tag, 3, 2, false, rounds.now);
    CHECK(overall_gain(rounds.turns) > 0.9 * before);
}

TEST_CASE("speculation that loses costs at most a few tokens of an answer") {
    for (const int took : {1100, 1500, 3000}) {
        Rounds rounds;
        rounds.run(256, took, 1);
        CAPTURE(took);
        CHECK_FALSE(rounds.turns.speculates());
        CHECK(rounds.spent < Micros{256 * 1000 * 103 / 100});
    }
}

TEST_CASE("speculation that begins to gain is found again within a probe's interval") {
    Rounds rounds;
    rounds.run(300, 1500, 1);
    CHECK_FALSE(rounds.turns.speculates());
    const int before = rounds.speculative;
    rounds.run(600, 1200, 4);
    CHECK(rounds.speculative - before > 200);
    CHECK(rounds.turns.speculates());
}

TEST_CASE("the kind of a turn is decided one batch before it begins") {
    Rounds rounds;
    for (int i = 0; i < 60; ++i) {
        (void)rounds.turns.formed(1, true, rounds.now);
        const int next = rounds.turns.allowed_next();
        rounds.now += Micros{1000};
        rounds.turns.verified(rounds.turns.formed(1, true, rounds.now), 1, 0, false, rounds.now);
        CHECK(rounds.turns.allowed() == next);
    }
}

TEST_CASE("verdicts of batches from before a change of kind belong to no turn") {
    GuardTurns turns;
    Micros now{0};
    // Plain turns, until the next one speculates.
    GuardTurns::Tag old{};
    while (turns.allowed() == 0) {
        old = turns.formed(1, true, now);
        now += Micros{1000};
        turns.verified(old, 1, 0, false, now);
    }
    // A batch of the plain phase was still on its way: it is late by a second.
    now += Micros{1'000'000};
    turns.verified(old, 1, 0, false, now);
    const auto tag = turns.formed(1, true, now);
    now += Micros{500};
    turns.verified(tag, 2, 1, false, now);
    CHECK(turns.gain() == doctest::Approx(4.0).epsilon(0.01));
}

TEST_CASE("the pause between two requests belongs to no turn") {
    Rounds rounds;
    rounds.run(40, 1200, 3);
    const double gain = rounds.turns.gain();
    rounds.turns.interrupted();
    rounds.now += Micros{5'000'000};
    rounds.run(10, 1200, 3);
    CHECK(rounds.turns.gain() == doctest::Approx(gain).epsilon(0.05));
}

TEST_CASE("a turn that a prompt shared is not counted") {
    Rounds rounds;
    rounds.run(40, 1200, 3);
    const auto tag = rounds.turns.formed(1, true, rounds.now);
    rounds.turns.disturbed();
    rounds.now += Micros{2'000'000};
    rounds.turns.verified(tag, 1, 4, false, rounds.now);
    CHECK(rounds.turns.gain() == doctest::Approx(2.5).epsilon(0.05));
    CHECK(rounds.turns.speculates());
}

TEST_CASE("a plain turn with candidates that were under way is not plain decoding's time") {
    Rounds rounds;
    rounds.run(20, 500, 2);
    const Micros plain = rounds.turns.plain_token();
    for (int i = 0; i < 200; ++i) {
        const bool is_plain = rounds.turns.allowed() == 0;
        const auto tag = rounds.turns.formed(1, true, rounds.now);
        rounds.now += Micros{is_plain ? 100 : 500};
        rounds.turns.verified(tag, 2, is_plain ? 1 : 3, false, rounds.now);
    }
    CHECK(rounds.turns.plain_token() == plain);
}

TEST_CASE("each number of requests has its own gain, which is kept") {
    Rounds rounds;
    rounds.run(200, 1200, 3, 1);
    rounds.run(200, 3000, 1, 8);
    CHECK_FALSE(rounds.turns.speculates());
    rounds.run(20, 1200, 3, 1);
    CHECK(rounds.turns.speculates());
    rounds.run(2, 3000, 1, 8);
    CHECK_FALSE(rounds.turns.speculates());
}

TEST_CASE("rounds that happen to be plain are compared with, and cost no turn of their own") {
    GuardTurns turns;
    Micros now{0};
    int forced = 0;
    for (int i = 0; i < 300; ++i) {
        const auto tag = turns.formed(1, true, now);
        const bool found = i % 10 == 0;  // a lookup finds something in every tenth round
        const bool speculates = turns.allowed() > 0;
        forced += i > 20 && !speculates ? 1 : 0;
        now += Micros{speculates && found ? 1200 : 1000};
        const int tokens = speculates && found ? 4 : 1;
        turns.verified(tag, tokens, speculates && found ? 4 : 0, !found, now);
    }
    CHECK(forced == 0);
    CHECK(turns.speculates());
}
