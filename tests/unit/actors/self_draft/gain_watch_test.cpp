#include "actors/self_draft/gain_watch.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

constexpr double kPlainMicros = 20'000.0;

/// A method in plain tokens: what a round costs, and how many tokens it commits: 1, and one more
/// for each of at most `length` candidates until one is rejected.
struct Method {
    double gain = 1.0;  // mean tokens over cost
    double accepts = 0.6;
    int length = 2;

    [[nodiscard]] double mean_tokens() const {
        double mean = 1.0;
        for (int i = 1; i <= length; ++i) mean += std::pow(accepts, i);
        return mean;
    }
    [[nodiscard]] double cost() const { return mean_tokens() / gain; }
};

/// Rounds of a text whose times vary by `noise`, one in a hundred five times as long.
struct Decoding {
    Decoding(std::uint64_t seed, double noise) : random{seed}, spread{noise} {}

    void rounds(const Method& method, int count) {
        for (int i = 0; i < count; ++i) round(method);
    }
    void round(const Method& method) {
        const bool drafted = watch.ask();
        int tokens = 1;
        while (drafted && tokens <= method.length && chance() < method.accepts) ++tokens;
        const double cost = drafted ? method.cost() : 1.0;
        double factor = std::exp(spread * normal(random) - spread * spread / 2);
        if (chance() < 0.01) factor *= 5.0;
        if (drafted && drafted_rounds == 0) factor *= 3.0;  // the first one warms up
        watch.round(drafted,
                    GainWatch::Micros{static_cast<std::int64_t>(kPlainMicros * cost * factor)},
                    tokens);
        time += cost;  // the noise is not the method's doing
        all_tokens += tokens;
        drafted_rounds += drafted ? 1 : 0;
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
};

constexpr int kSeeds = 200;

/// Speeds over 2,000 rounds, sorted.
std::vector<double> speeds(const Method& method, double noise) {
    std::vector<double> all;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        Decoding text{seed, noise};
        text.rounds(method, 2000);
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

/// One token a round, two, and up to seven with four on average.
const std::vector<Method> kShapes = {{1.0, 0.0, 1}, {1.0, 0.6, 2}, {1.0, 0.8, 6}};

Method with_gain(Method method, double gain) {
    method.gain = gain;
    return method;
}

}  // namespace

TEST_CASE("a method that makes tokens twice as slow costs at most 2 percent over 2,000 rounds") {
    for (const Method& shape : kShapes) {
        for (const double noise : {0.05, 0.2}) {
            const std::vector<double> all = speeds(with_gain(shape, 0.5), noise);
            CAPTURE(shape.length);
            CAPTURE(noise);
            CHECK(mean(all) >= 0.98);
            CHECK(all[kSeeds / 20] >= 0.97);  // by bad luck
        }
    }
}

TEST_CASE("a method that gains 1.3 loses at most 1 percent of it") {
    for (const Method& shape : kShapes) {
        for (const double noise : {0.05, 0.2}) {
            CAPTURE(shape.length);
            CAPTURE(noise);
            CHECK(mean(speeds(with_gain(shape, 1.3), noise)) >= 0.99 * 1.3);
        }
    }
}

TEST_CASE("a method that loses a little, or nothing, stays above 0.975 of plain decoding") {
    for (const Method& shape : kShapes) {
        for (const double gain : {0.8, 0.95, 1.0}) {
            CAPTURE(shape.length);
            CAPTURE(gain);
            CHECK(mean(speeds(with_gain(shape, gain), 0.1)) >= 0.975);
        }
    }
}

TEST_CASE("a method that turns from losing to gaining is found within 1,000 rounds") {
    for (const Method& shape : {kShapes[0], kShapes[1]}) {
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
        CHECK(text.time - text.all_tokens - before < GainWatch::kMost + 2 * worse.cost());
        CHECK(text.watch.gain() < 1.0);
    }
}

TEST_CASE("a round that takes a hundred times as long does not end drafting") {
    Decoding text{5, 0.05};
    const Method method = with_gain(kShapes[1], 1.3);
    text.rounds(method, 500);
    for (int stall = 0; stall < 5; ++stall) {
        const bool drafted = text.watch.ask();
        text.watch.round(drafted, GainWatch::Micros{4'000'000}, 1);
        text.rounds(method, 20);
        CHECK(text.watch.drafting());
    }
}

TEST_CASE("a method twenty times as slow is probed the more rarely the longer it is") {
    Decoding text{7, 0.05};
    const Method method = with_gain(kShapes[0], 0.05);
    text.rounds(method, 3000);
    const int early = text.drafted_rounds;
    text.rounds(method, 20'000);
    CHECK(text.drafted_rounds - early <= 16);  // 16 x 19 of 20,000 tokens: 1.5 %
    CHECK(text.drafted_rounds > early);
}

TEST_CASE("it begins with a few plain rounds and looks at plain ones ever more rarely") {
    GainWatch watch{true};
    std::vector<int> plain;
    for (int i = 0; i < 200; ++i) {
        const bool drafted = watch.ask();
        if (!drafted) plain.push_back(i);
        watch.round(drafted, GainWatch::Micros{1000}, drafted ? 3 : 1);
    }
    CHECK((plain == std::vector<int>{0, 1, 2, 7, 16, 33, 66, 131, 196}));
    CHECK(watch.gain() == doctest::Approx(3.0));
}

TEST_CASE("it always drafts if it is disabled, and without a clock") {
    GainWatch off{false};
    GainWatch timeless{true};
    for (int i = 0; i < 50; ++i) {
        CHECK(off.ask());
        off.round(true, GainWatch::Micros{100'000}, 1);
        timeless.round(false, GainWatch::Micros{1000}, 1);
    }
    CHECK(off.gain() == 0.0);
    for (int i = 0; i < 50; ++i) {
        (void)timeless.ask();
        timeless.round(true, GainWatch::Micros{0}, 0);
    }
    CHECK(timeless.drafting());
}
