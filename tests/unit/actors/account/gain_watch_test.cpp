#include "actors/account/gain_watch.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr double kPlainMicros = 20'000.0;

/// A method in plain tokens: each candidate costs the same beyond a plain round, and is accepted
/// with the probability `accepts` if those before it were. `gain` is that of rounds of `length`
/// candidates: mean tokens over cost.
struct Method {
    double gain = 1.0;
    double accepts = 0.6;
    int length = 2;

    [[nodiscard]] double mean_tokens() const {
        double mean = 1.0;
        for (int i = 1; i <= length; ++i) mean += std::pow(accepts, i);
        return mean;
    }
    [[nodiscard]] double candidate() const { return (mean_tokens() / gain - 1.0) / length; }
    [[nodiscard]] double cost(int candidates) const { return 1.0 + candidates * candidate(); }
};

constexpr double kWarmUp = 1.5;  // times that of another round: the first one with drafts

/// Rounds of a text whose times vary by `noise`, one in a hundred five times as long.
struct Decoding {
    Decoding(std::uint64_t seed, double noise) : random{seed}, spread{noise} {}

    void rounds(const Method& method, int count) {
        for (int i = 0; i < count; ++i) round(method);
    }
    void answer(const Method& method, int tokens) {
        while (all_tokens < tokens) round(method);
    }
    void round(const Method& method) {
        const int candidates = std::min(watch.ask(), method.length);
        int tokens = 1;
        while (tokens <= candidates && chance() < method.accepts) ++tokens;
        double cost = method.cost(candidates);
        if (candidates > 0 && drafted_rounds == 0) cost *= kWarmUp;
        double factor = std::exp(spread * normal(random) - spread * spread / 2);
        if (chance() < 0.01) factor *= 5.0;
        watch.round(micros(cost * factor), tokens, candidates);
        time += cost;  // the noise is not the method's doing
        all_tokens += tokens;
        drafted_rounds += candidates > 0 ? 1 : 0;
    }
    /// A job that is wanted before every round, of so many plain tokens.
    void job(double tokens) {
        if (!watch.affords(micros(tokens))) return;
        watch.paid(micros(tokens));
        time += tokens;
        ++jobs;
    }
    [[nodiscard]] static GainWatch::Micros micros(double tokens) {
        return GainWatch::Micros{static_cast<std::int64_t>(kPlainMicros * tokens)};
    }
    [[nodiscard]] double chance() { return std::uniform_real_distribution<>{0.0, 1.0}(random); }
    /// Speed over that of plain decoding.
    [[nodiscard]] double speed() const { return all_tokens / time; }

    GainWatch watch{true};
    std::mt19937_64 random;
    std::normal_distribution<> normal{0.0, 1.0};
    double spread;
    double time = 0.0;  // in plain tokens
    int all_tokens = 0;
    int drafted_rounds = 0;
    int jobs = 0;
};

constexpr int kSeeds = 200;

/// Speeds over an answer of so many tokens in a process of its own, sorted.
std::vector<double> speeds(const Method& method, double noise, int tokens) {
    std::vector<double> all;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        Decoding text{seed, noise};
        text.answer(method, tokens);
        all.push_back(text.speed());
    }
    std::sort(all.begin(), all.end());
    return all;
}

double mean(const std::vector<double>& values) {
    double sum = 0.0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

/// Up to two tokens a round, up to three, and up to seven.
const std::vector<Method> kShapes = {{1.0, 0.6, 1}, {1.0, 0.6, 2}, {1.0, 0.8, 6}};

Method with_gain(Method method, double gain) {
    method.gain = gain;
    return method;
}

constexpr int kAnswer = 256;
constexpr int kLong = 3000;

}  // namespace

TEST_CASE("a method that loses reaches 0.98 of plain decoding over one answer of 256 tokens") {
    for (const Method& shape : kShapes) {
        for (const double gain : {0.4, 0.5, 0.6, 0.8, 0.95}) {
            for (const double noise : {0.05, 0.1}) {
                const std::vector<double> all = speeds(with_gain(shape, gain), noise, kAnswer);
                CAPTURE(shape.length);
                CAPTURE(gain);
                CAPTURE(noise);
                CHECK(mean(all) >= 0.98);
                CHECK(all[kSeeds / 20] >= 0.96);  // by bad luck
            }
        }
    }
}

TEST_CASE("a method that loses reaches 0.984 of plain decoding over 3,000 tokens") {
    for (const Method& shape : kShapes) {
        for (const double gain : {0.3, 0.5, 0.8}) {
            for (const double noise : {0.05, 0.2}) {
                const std::vector<double> all = speeds(with_gain(shape, gain), noise, kLong);
                CAPTURE(shape.length);
                CAPTURE(gain);
                CAPTURE(noise);
                CHECK(mean(all) >= 0.984);
                CHECK(all[kSeeds / 20] >= 0.95);
            }
        }
    }
}

TEST_CASE("a method that gains 1.3 keeps 1.2 of it over one answer, 0.97 of it over 3,000 tokens") {
    for (const Method& shape : kShapes) {
        for (const double noise : {0.05, 0.2}) {
            CAPTURE(shape.length);
            CAPTURE(noise);
            CHECK(mean(speeds(with_gain(shape, 1.3), noise, kAnswer)) >= 1.2);
            CHECK(mean(speeds(with_gain(shape, 1.3), noise, kLong)) >= 0.97 * 1.3);
        }
    }
}

TEST_CASE(
    "a search for a better set is paid from the same budget, and leaves enough of it for probes") {
    for (const Method& shape : kShapes) {
        double speed = 0.0;
        int jobs = 0;
        for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
            Decoding text{seed, 0.05};
            const Method method = with_gain(shape, 0.5);
            while (text.all_tokens < kAnswer) {
                text.job(4.0);
                text.round(method);
            }
            speed += text.speed() / kSeeds;
            const int drafted = text.drafted_rounds;
            while (text.all_tokens < kLong) {
                text.job(4.0);
                text.round(method);
            }
            CHECK(text.drafted_rounds > drafted);
            jobs += text.jobs;
        }
        CAPTURE(shape.length);
        CHECK(speed >= 0.98);
        CHECK(jobs >= kSeeds * 3);
    }
}

TEST_CASE("a method that turns from losing to gaining is found within 1,000 rounds") {
    for (const Method& shape : kShapes) {
        int found = 0;
        for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
            Decoding text{seed, 0.1};
            text.rounds(with_gain(shape, 0.5), 3000 + static_cast<int>(seed));
            const int before = text.drafted_rounds;
            text.rounds(with_gain(shape, 1.3), 1000);
            const bool probed = text.drafted_rounds > before;
            CHECK(probed);
            found += text.watch.drafting() && text.drafted_rounds > before + 32 ? 1 : 0;
        }
        CAPTURE(shape.length);
        CHECK(found >= kSeeds * 95 / 100);
    }
}

TEST_CASE("a method that turns from gaining to losing is given up after what kMost allows") {
    for (const Method& shape : kShapes) {
        Decoding text{3, 0.1};
        text.rounds(with_gain(shape, 1.5), 2000);
        CHECK(text.watch.drafting());
        CHECK(text.watch.gain() == doctest::Approx(1.5).epsilon(0.2));
        const double before = text.time - text.all_tokens;
        const Method worse = with_gain(shape, 0.5);
        while (text.watch.drafting()) text.round(worse);
        CHECK(text.time - text.all_tokens - before < GainWatch::kMost + worse.cost(worse.length));
        CHECK(text.watch.gain() < 1.0);
    }
}

TEST_CASE("a round that takes a hundred times as long does not end drafting") {
    Decoding text{5, 0.05};
    const Method method = with_gain(kShapes[1], 1.3);
    text.rounds(method, 500);
    for (int stall = 0; stall < 5; ++stall) {
        const int candidates = std::min(text.watch.ask(), method.length);
        text.watch.round(GainWatch::Micros{4'000'000}, 1, candidates);
        text.rounds(method, 20);
        CHECK(text.watch.drafting());
    }
}

TEST_CASE("a method twenty times as slow is probed the more rarely the longer it is") {
    Decoding text{7, 0.05};
    const Method method = with_gain(kShapes[0], 0.08);
    text.rounds(method, 3000);
    const int early = text.drafted_rounds;
    text.rounds(method, 20'000);
    CHECK(text.drafted_rounds - early <= 11);  // each loses 18 of 20,000 tokens: 1 %
    CHECK(text.drafted_rounds > early);
}

TEST_CASE("the first round tries one candidate, later ones more as they gain") {
    GainWatch watch{true};
    std::vector<int> allowed;
    for (int i = 0; i < 40; ++i) {
        const int candidates = std::min(watch.ask(), 12);
        if (candidates > 0) allowed.push_back(candidates);
        watch.round(GainWatch::Micros{1000 + 500 * candidates}, 1 + candidates, candidates);
    }
    CHECK(allowed.front() == 1);
    CHECK(std::is_sorted(allowed.begin(), allowed.end()));
    CHECK(allowed.back() == 12);
}

TEST_CASE("a first round with drafts that is interrupted does not end drafting") {
    GainWatch watch{true};
    int drafted = 0;
    for (int i = 0; i < 64; ++i) {
        const int candidates = std::min(watch.ask(), 4);
        drafted += candidates > 0 ? 1 : 0;
        const int took = drafted == 1 && candidates > 0 ? 3200 : 1000 + 300 * candidates;
        watch.round(GainWatch::Micros{took}, 1 + candidates, candidates);
    }
    CHECK(watch.drafting());
    CHECK(drafted > 40);
}

TEST_CASE("plain rounds that are slow because a process is new do not make drafts look good") {
    const auto plain_of_256 = [](int first_plain) {
        GainWatch watch{{.plain_first = 3, .check_first = 16, .plain_kept = 5}};
        int plain = 0;
        for (int i = 0; i < 256; ++i) {
            const int candidates = std::min(watch.ask(), 1);
            plain += candidates == 0 ? 1 : 0;
            const int took = candidates > 0 ? 1200 : plain <= 2 ? first_plain : 1000;
            watch.round(GainWatch::Micros{took}, 1, candidates);
        }
        return plain;
    };
    CHECK(plain_of_256(1300) >= plain_of_256(1000) - 30);
}

TEST_CASE("drafting stops while the budget does not cover one candidate") {
    GainWatch watch{true};
    int drafted = 0;
    for (int i = 0; i < 400; ++i) {
        const int candidates = std::min(watch.ask(), 25);
        drafted += candidates;
        watch.round(GainWatch::Micros{1000 + 1800 * candidates}, 1, candidates);
    }
    CHECK(drafted == 3);  // each costs 1.8 of 2.5 plain tokens, which 180 plain rounds bring back
}

TEST_CASE("it begins with a few plain rounds and looks at plain ones ever more rarely") {
    GainWatch watch{true};
    std::vector<int> plain;
    for (int i = 0; i < 220; ++i) {
        const int candidates = std::min(watch.ask(), 2);
        if (candidates == 0) plain.push_back(i);
        watch.round(GainWatch::Micros{1000}, 1 + candidates, candidates);
    }
    CHECK((plain == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 12, 21, 38, 71, 136, 201}));
    CHECK(watch.gain() == doctest::Approx(3.0).epsilon(0.05));
}

TEST_CASE("it always drafts if it is disabled, and without a clock") {
    GainWatch off{false};
    GainWatch timeless{true};
    for (int i = 0; i < 50; ++i) {
        CHECK(off.ask() == GainWatch::kAnyNumber);
        CHECK(off.affords(GainWatch::Micros{1'000'000'000}));
        off.round(GainWatch::Micros{100'000}, 1, 4);
        off.paid(GainWatch::Micros{1'000'000'000});
        timeless.round(GainWatch::Micros{1000}, 1, 0);
    }
    CHECK(off.gain() == 0.0);
    for (int i = 0; i < 50; ++i) {
        (void)timeless.ask();
        timeless.round(GainWatch::Micros{0}, 0, 1);
    }
    CHECK(timeless.drafting());
}

TEST_CASE("a probe does not wait for a job that is no longer due") {
    GainWatch watch{true};
    const auto plain_rounds = [&watch](int count) {
        for (int i = 0; i < count; ++i) watch.round(GainWatch::Micros{1000}, 1, 0);
    };
    plain_rounds(GainWatch::kPlainFirst);
    CHECK(watch.ask() == 1);
    watch.round(GainWatch::Micros{3500}, 1, 1);  // uses the budget up
    CHECK_FALSE(watch.drafting());
    plain_rounds(260);
    CHECK_FALSE(watch.affords(GainWatch::Micros{10'000}));
    CHECK(watch.ask() == 0);  // the budget covers a probe, not the job beside it
    CHECK(watch.ask() == 1);
}

TEST_CASE("a job that uses up the budget ends drafting") {
    GainWatch watch{true};
    for (int i = 0; i < 60; ++i) {
        const int candidates = std::min(watch.ask(), 2);
        watch.round(GainWatch::Micros{1000 + 300 * candidates}, 1 + candidates, candidates);
    }
    REQUIRE(watch.drafting());
    CHECK(
        watch.affords(GainWatch::Micros{40'000}));  // more than a budget can hold: paid afterwards
    watch.paid(GainWatch::Micros{40'000});
    CHECK_FALSE(watch.drafting());
    CHECK(watch.ask() == 0);
}
