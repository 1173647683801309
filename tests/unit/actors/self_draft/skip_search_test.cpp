#include "actors/self_draft/skip_search.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

SkipSearchOptions thirty_layers(std::uint64_t seed = 1) {
    SkipSearchOptions options;
    options.layers = 30;
    options.seed = seed;
    return options;
}

/// A model in which each skipped sub-layer lowers the matchness by its own factor, few of them by
/// much.
struct Model {
    explicit Model(std::uint64_t seed, int layers = 30) : random{seed} {
        std::exponential_distribution<> cost{1 / 0.08};
        for (int s = 0; s < 2 * layers; ++s) costs.push_back(cost(random));
    }
    [[nodiscard]] double matchness(const SkipSet& set) const {
        double sum = 0.0;
        for (int s = 0; s < 2 * set.layers(); ++s) {
            sum += set.skips(s) ? costs[static_cast<std::size_t>(s)] : 0.0;
        }
        return std::exp(-sum);
    }
    /// Right predictions in a window of so many tokens.
    [[nodiscard]] double measured(const SkipSet& set, int window) {
        return std::binomial_distribution<>{window, matchness(set)}(random) /
               static_cast<double>(window);
    }
    /// The matchness of the best set of `count` sub-layers that skips no outer layer.
    [[nodiscard]] double optimum(int count) const {
        std::vector<double> inner(costs.begin() + 2, costs.end() - 2);
        std::sort(inner.begin(), inner.end());
        double sum = 0.0;
        for (int i = 0; i < count; ++i) sum += inner[static_cast<std::size_t>(i)];
        return std::exp(-sum);
    }

    std::mt19937_64 random;
    std::vector<double> costs;
};

/// Until it is done. Returns the number of trials.
int search(SkipSearch& search, const Model& model) {
    int trials = 0;
    for (; search.searching(); ++trials) {
        const SkipSet trial = search.propose();
        search.judged(trial, model.matchness(trial), model.matchness(search.best()));
    }
    return trials;
}

bool within_bounds(const SkipSet& set, int count) {
    return set.layers() == 30 && set.count() == count && set.first_skipped() >= 2 &&
           !set.skips(58) && !set.skips(59);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    const std::size_t at = text.find(what);
    REQUIRE_MESSAGE(at != std::string::npos, what);
    return text.replace(at, what.size(), by);
}

}  // namespace

TEST_CASE("it begins with the uniform set and proposes sets of the same size within the bounds") {
    SkipSearch search{thirty_layers()};
    CHECK(search.best() == SkipSet::uniform(30, 25, 1, 1));
    CHECK(search.searching());
    CHECK(search.matchness() == 0.0);
    const Model model{1};
    for (int i = 0; i < 60; ++i) {
        const SkipSet trial = search.propose();
        CHECK(within_bounds(trial, 25));
        search.judged(trial, model.matchness(trial), model.matchness(search.best()));
    }
    CHECK(search.trials() == 60);
}

TEST_CASE("random proposals skip every inner sub-layer about equally often") {
    SkipSearchOptions options = thirty_layers(9);
    options.bayes_every = 0;
    SkipSearch search{options};
    std::vector<int> times(60);
    constexpr int kProposals = 4000;
    for (int i = 0; i < kProposals; ++i) {
        const SkipSet set = search.propose();
        for (int s = 0; s < 60; ++s) times[static_cast<std::size_t>(s)] += set.skips(s) ? 1 : 0;
    }
    const double expected = kProposals * 25.0 / 56.0;
    for (int s = 2; s < 58; ++s) {
        CHECK(std::abs(times[static_cast<std::size_t>(s)] - expected) < 5 * std::sqrt(expected));
    }
}

TEST_CASE("a trial is taken over only if it is better than the best set on the same window") {
    SkipSearch search{thirty_layers()};
    const SkipSet start = search.best();
    const SkipSet first = search.propose();
    search.judged(first, 0.5, 0.5);
    CHECK(search.best() == start);
    CHECK(search.matchness() == 0.5);
    search.judged(first, 0.3, 0.2);  // a harder window
    CHECK(search.best() == first);
    CHECK(search.matchness() == 0.3);
    search.judged(search.propose(), 0.6, 0.7);
    CHECK(search.best() == first);
    CHECK(search.matchness() == 0.7);
}

TEST_CASE(
    "it finds a far better set than the uniform one, with Bayesian proposals nearly the best") {
    double start = 0.0;
    double by_chance = 0.0;
    double found = 0.0;
    double optimum = 0.0;
    constexpr int kModels = 4;
    for (std::uint64_t seed = 1; seed <= kModels; ++seed) {
        const Model model{seed};
        SkipSearchOptions options = thirty_layers(seed);
        SkipSearch bayes{options};
        options.bayes_every = 0;
        SkipSearch chance{options};
        start += model.matchness(bayes.best()) / kModels;
        (void)search(bayes, model);
        (void)search(chance, model);
        found += model.matchness(bayes.best()) / kModels;
        by_chance += model.matchness(chance.best()) / kModels;
        optimum += model.optimum(25) / kModels;
        CHECK(within_bounds(bayes.best(), 25));
    }
    MESSAGE("matchness of the uniform set ", start, ", by chance ", by_chance,
            ", with Bayesian proposals ", found, ", at best ", optimum);
    CHECK(by_chance > start + 0.1);
    CHECK(found > by_chance + 0.1);
    CHECK(found > 0.95 * optimum);
}

TEST_CASE("windows of 32 tokens are enough to get far beyond the uniform set") {
    double start = 0.0;
    double found = 0.0;
    constexpr int kModels = 6;
    for (std::uint64_t seed = 1; seed <= kModels; ++seed) {
        Model model{seed};
        SkipSearch search{thirty_layers(seed)};
        start += model.matchness(search.best()) / kModels;
        while (search.searching()) {
            const SkipSet trial = search.propose();
            const double of_trial = model.measured(trial, 32);
            search.judged(trial, of_trial, model.measured(search.best(), 32));
        }
        found += model.matchness(search.best()) / kModels;
    }
    MESSAGE("matchness of the uniform set ", start, ", found ", found);
    CHECK(found > 1.5 * start);
}

TEST_CASE("it is done when a set is good enough, when none gets better, and after trials_max") {
    SUBCASE("good enough") {
        SkipSearch search{thirty_layers()};
        search.judged(search.propose(), 0.94, 0.2);
        CHECK(search.searching());
        search.judged(search.propose(), 0.95, 0.2);
        CHECK_FALSE(search.searching());
    }
    SUBCASE("none gets better") {
        SkipSearch search{thirty_layers()};
        search.judged(search.propose(), 0.5, 0.4);
        for (int i = 0; i < 299; ++i) search.judged(search.propose(), 0.4, 0.5);
        CHECK(search.searching());
        search.judged(search.propose(), 0.4, 0.5);
        CHECK_FALSE(search.searching());
    }
    SUBCASE("after trials_max") {
        SkipSearchOptions options = thirty_layers();
        options.trials_max = 7;
        SkipSearch search{options};
        for (int i = 0; i < 7; ++i) {
            CHECK(search.searching());
            search.judged(search.propose(), 0.1 + 0.01 * i, 0.1);
        }
        CHECK_FALSE(search.searching());
    }
    SUBCASE("at once, if there is nothing to choose") {
        SkipSearchOptions options = thirty_layers();
        options.ratio = 1.0;
        CHECK_FALSE(SkipSearch{options}.searching());
        options.layers = 2;
        CHECK_FALSE(SkipSearch{options}.searching());
        CHECK(SkipSearch{options}.best().count() == 0);
    }
}

TEST_CASE("a search that is done whose tokens are rejected begins anew with a lower ratio") {
    SkipSearchOptions options = thirty_layers();
    options.trials_max = 3;
    SkipSearch search{options};
    for (int i = 0; i < 200; ++i) search.verified(1, 4);  // it is still searching
    CHECK(search.ratio() == 0.45);
    for (int i = 0; i < 3; ++i) search.judged(search.propose(), 0.5 + 0.1 * i, 0.4);
    const SkipSet before = search.best();
    for (int i = 0; i < SkipSearch::kVerdictsToAdjust - 1; ++i) search.verified(2, 4);
    CHECK(search.ratio() == 0.45);
    search.verified(2, 4);
    CHECK(search.ratio() == doctest::Approx(0.40));
    CHECK(search.searching());
    CHECK(search.trials() == 0);
    CHECK(search.matchness() == 0.0);
    CHECK(within_bounds(search.best(), 22));
    for (int s = 0; s < 60; ++s) {
        if (search.best().skips(s)) CHECK(before.skips(s));
    }
    CHECK(within_bounds(search.propose(), 22));

    // The verdicts count anew as well.
    for (int i = 0; i < 200; ++i) search.verified(2, 4);
    for (int i = 0; i < 3; ++i) search.judged(search.propose(), 0.5, 0.4);
    for (int i = 0; i < SkipSearch::kVerdictsToAdjust - 1; ++i) search.verified(2, 4);
    CHECK(search.ratio() == doctest::Approx(0.40));
    search.verified(2, 4);
    CHECK(search.ratio() == doctest::Approx(0.35));
}

TEST_CASE("a ratio that is accepted stays, and none is lowered without end") {
    SkipSearchOptions options = thirty_layers();
    options.trials_max = 1;
    SkipSearch good{options};
    SkipSearch bad{options};
    good.judged(good.propose(), 0.5, 0.4);
    for (int i = 0; i < 1000; ++i) good.verified(3, 4);
    CHECK(good.ratio() == 0.45);
    for (int i = 0; i < 5000; ++i) {
        if (bad.searching()) bad.judged(bad.propose(), 0.1, 0.1);
        bad.verified(0, 4);
        bad.verified(0, 0);
    }
    CHECK(bad.ratio() == doctest::Approx(SkipSearch::kRatioLeast));
    options.acceptance_min = 0.0;
    SkipSearch fixed{options};
    fixed.judged(fixed.propose(), 0.5, 0.4);
    for (int i = 0; i < 1000; ++i) fixed.verified(0, 4);
    CHECK(fixed.ratio() == 0.45);
}

TEST_CASE("a restored search goes on exactly as the one that was encoded") {
    const Model model{3};
    SkipSearchOptions options = thirty_layers(0xFEDC'BA98'7654'3210U);
    options.bayes_every = 5;
    SkipSearch original{options};
    for (int i = 0; i < 143; ++i) {
        const SkipSet trial = original.propose();
        original.judged(trial, model.matchness(trial), model.matchness(original.best()));
        original.verified(i % 4, 5);
    }
    options.seed = 2;  // that of the state counts
    SkipSearch restored{options};
    const Status status = restored.restore(original.encode());
    REQUIRE_MESSAGE(status.ok(), status.error().what);
    CHECK(restored.encode() == original.encode());
    CHECK(restored.best() == original.best());
    CHECK(restored.matchness() == original.matchness());
    CHECK(restored.trials() == 143);
    for (int i = 0; i < 12; ++i) {
        const SkipSet trial = original.propose();
        CHECK(restored.propose() == trial);
        for (SkipSearch* search : {&original, &restored}) {
            search->judged(trial, model.matchness(trial), model.matchness(search->best()));
        }
    }
    CHECK(restored.encode() == original.encode());
}

TEST_CASE("a state that is not this search's is refused, with the field, and changes nothing") {
    SkipSearch search{thirty_layers()};
    search.judged(search.propose(), 0.5, 0.4);
    const std::string good = search.encode();
    const std::string best = "\"best\": \"" + search.best().text() + '"';
    SkipSearch other{thirty_layers()};
    const std::string before = other.encode();
    const auto refusal = [&](const std::string& text) {
        const Status status = other.restore(text);
        CHECK_FALSE(status.ok());
        CHECK(other.encode() == before);
        if (status.ok()) return std::string{};
        CHECK(status.error().code == Errc::BadFile);
        return status.error().what;
    };
    const auto names = [&](const std::string& text, const std::string& field) {
        const std::string what = refusal(text);
        CHECK_MESSAGE(what.find(field) != std::string::npos, what);
    };
    names("", "not JSON");
    names(good.substr(0, good.size() / 2), "not JSON");
    names("[]", "not an object");
    names("{}", "\"format\" is missing");
    names(replaced(good, "\"format\": 1", "\"format\": 2"), "\"format\" is 2");
    names(replaced(good, "\"layers\": 30", "\"layers\": 32"),
          "\"layers\" is 32, this search has 30");
    names(replaced(good, "\"keep_first\": 1", "\"keep_first\": 2"), "\"keep_first\" is 2");
    names(replaced(good, "\"keep_last\": 1", "\"keep_last\": true"), "\"keep_last\" is true");
    names(replaced(good, "\"ratio_begin\": 0.45", "\"ratio_begin\": 0.5"),
          "\"ratio_begin\" is 0.5");
    names(replaced(good, "\"ratio\": 0.45", "\"ratio\": 0.9"), "\"ratio\" is 0.9");
    names(replaced(good, "\"ratio\": 0.45", "\"ratio\": 0.4"), "\"best\" skips 25 sub-layers");
    names(replaced(good, "\"seed\": 1", "\"seed\": -1"), "\"seed\" is -1");
    names(replaced(good, best, "\"best\": \"attn:0-24\""), "\"best\" skips layer 0");
    names(replaced(good, best, "\"best\": \"attn:1,40\""), "\"best\": skip set: \"40\"");
    names(replaced(good, best, "\"best\": 7"), "\"best\" is 7");
    names(replaced(good, "\"trials\": 1", "\"trials\": 1.5"), "\"trials\" is 1.5");
    names(replaced(good, "\"trials\": 1", "\"trials\": 18446744073709551615"),
          "\"trials\" is 1844");
    names(replaced(good, "\"since_better\"", "\"since\""), "\"since_better\" is missing");
    names(replaced(good, "\"drafted\": 0.0", "\"drafted\": null"), "\"drafted\" is null");
    names(replaced(good, "\"verdicts\": 0", "\"verdicts\": 65"), "\"verdicts\" is 65");
    names(replaced(good, "\"observations\": [", "\"observations\": [3,"), "observations[0] is not");
    names(replaced(good, "\"matchness\": 0.5,\n   \"skip\"", "\"matchness\": 1.5,\n   \"skip\""),
          "observations[0] \"matchness\" is 1.5");
    CHECK(other.restore(good).ok());
}
