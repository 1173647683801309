#include "actors/self_draft/layer_skip_dp.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

using State = std::vector<float>;

/// Layers of a residual network, and what the whole of it makes of one state.
struct Network {
    int dim = 0;
    std::vector<std::function<State(const State&)>> layers = {};
    State input = {};

    [[nodiscard]] int depth() const { return static_cast<int>(layers.size()); }
    [[nodiscard]] std::vector<State> states() const {
        std::vector<State> all = {input};
        for (const auto& layer : layers) all.push_back(layer(all.back()));
        return all;
    }
    [[nodiscard]] std::vector<float> stack() const {
        std::vector<float> flat;
        for (const State& state : states()) flat.insert(flat.end(), state.begin(), state.end());
        return flat;
    }
    [[nodiscard]] State without(const SkipSet& set) const {
        State state = input;
        for (int layer = 0; layer < depth(); ++layer) {
            if (!set.skips(2 * layer)) state = layers[static_cast<std::size_t>(layer)](state);
        }
        return state;
    }
    [[nodiscard]] RunLayer runner(std::vector<int>* rows_of_calls = nullptr) const {
        return [this, rows_of_calls](int layer, std::span<float> rows) {
            const auto d = static_cast<std::size_t>(dim);
            CHECK(rows.size() % d == 0);
            if (rows_of_calls) rows_of_calls->push_back(static_cast<int>(rows.size() / d));
            for (std::size_t at = 0; at < rows.size(); at += d) {
                const State in(rows.begin() + static_cast<std::ptrdiff_t>(at),
                               rows.begin() + static_cast<std::ptrdiff_t>(at + d));
                const State out = layers[static_cast<std::size_t>(layer)](in);
                std::copy(out.begin(), out.end(), rows.begin() + static_cast<std::ptrdiff_t>(at));
            }
            return true;
        };
    }
};

/// x + scale * B tanh(A x / |x|), random A and B and a scale per layer.
Network random_network(std::uint64_t seed, int depth, int dim) {
    std::mt19937_64 random{seed};
    std::normal_distribution<float> normal{0.0F, 1.0F};
    const auto matrix = [&] {
        State values(static_cast<std::size_t>(dim) * static_cast<std::size_t>(dim));
        for (float& value : values) value = normal(random);
        return values;
    };
    Network network{dim};
    for (int l = 0; l < depth; ++l) {
        const float scale = std::exp(0.7F * normal(random)) * 0.3F;
        network.layers.emplace_back([a = matrix(), b = matrix(), scale, dim](const State& x) {
            const auto d = static_cast<std::size_t>(dim);
            float norm = 0.0F;
            for (const float value : x) norm += value * value;
            norm = std::sqrt(norm / static_cast<float>(dim));
            State hidden(d);
            State out = x;
            for (std::size_t i = 0; i < d; ++i) {
                float sum = 0.0F;
                for (std::size_t j = 0; j < d; ++j) sum += a[i * d + j] * x[j] / norm;
                hidden[i] = std::tanh(0.3F * sum);
            }
            for (std::size_t i = 0; i < d; ++i) {
                for (std::size_t j = 0; j < d; ++j) out[i] += scale * b[i * d + j] * hidden[j];
            }
            return out;
        });
    }
    network.input = State(static_cast<std::size_t>(dim));
    for (float& value : network.input) value = normal(random);
    return network;
}

/// The reference implementation: the definition of g[i][j], evaluated from its end, a row at a
/// time.
struct Reference {
    const Network& network;
    LayerSkipDpOptions options;
    std::vector<State> h = network.states();

    struct Best {
        State state;
        SkipSet set;
    };
    [[nodiscard]] std::optional<Best> g(int i, int j) const {
        if (j < 0 || j > i) return std::nullopt;
        if (i == 0) return Best{h[0], SkipSet{options.layers}};
        const int layer = i - 1;
        std::optional<Best> keep = g(i - 1, j);
        if (keep) keep->state = network.layers[static_cast<std::size_t>(layer)](keep->state);
        std::optional<Best> skip;
        if (layer >= options.keep_first && layer < options.layers - options.keep_last) {
            skip = g(i - 1, j - 1);
        }
        if (skip) skip->set.skip_layer(layer);
        if (!keep || !skip) return keep ? keep : skip;
        const State& wanted = h[static_cast<std::size_t>(i)];
        return cosine(keep->state, wanted) >= cosine(skip->state, wanted) ? keep : skip;
    }
};

/// The cosines of all sets of `skip` layers, the best first.
std::vector<double> of_all_sets(const Network& network, const LayerSkipDpOptions& options) {
    std::vector<double> cosines;
    const State wanted = network.states().back();
    const int skippable = options.layers - options.keep_first - options.keep_last;
    for (unsigned bits = 0; bits < 1U << static_cast<unsigned>(skippable); ++bits) {
        SkipSet set{options.layers};
        for (int l = 0; l < skippable; ++l) {
            if ((bits >> static_cast<unsigned>(l)) & 1U) set.skip_layer(options.keep_first + l);
        }
        if (set.count() == 2 * options.skip)
            cosines.push_back(cosine(network.without(set), wanted));
    }
    std::sort(cosines.rbegin(), cosines.rend());
    return cosines;
}

}  // namespace

TEST_CASE(
    "the cosine of two residuals is that of the angle between them, 0 where one has no length") {
    const State a{3.0F, 4.0F};
    CHECK(cosine(a, a) == doctest::Approx(1.0));
    CHECK(cosine(a, State{-8.0F, 6.0F}) == doctest::Approx(0.0));
    CHECK(cosine(a, State{-6.0F, -8.0F}) == doctest::Approx(-1.0));
    CHECK(cosine(a, State{2.0F, 0.0F}) == doctest::Approx(0.6));
    CHECK(cosine(a, State{0.0F, 0.0F}) == 0.0);
}

TEST_CASE("the programme is the definition of g, evaluated in batches") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const Network network = random_network(seed, 9, 8);
        for (const int keep : {0, 1, 2}) {
            for (int skip = 0; skip <= 9 - 2 * keep; ++skip) {
                const LayerSkipDpOptions options{9, skip, keep, keep};
                const LayerSkipDpResult got =
                    choose_layers(network.stack(), options, network.runner());
                const auto wanted = Reference{network, options}.g(9, skip);
                REQUIRE(got.done);
                REQUIRE(wanted);
                CHECK(got.set == wanted->set);
                CHECK(got.set.count() == 2 * skip);
                const double reached = cosine(network.without(got.set), network.states().back());
                CHECK(got.cosine == doctest::Approx(reached).epsilon(1e-6));
            }
        }
    }
}

TEST_CASE("where a closer state stays closer the chosen set is the best of all") {
    // Layers that turn the state in a plane: what is lost is the sum of the angles that are
    // skipped.
    std::mt19937_64 random{3};
    std::uniform_real_distribution<float> angle{0.01F, 0.15F};
    for (int trial = 0; trial < 20; ++trial) {
        Network network{2};
        std::vector<std::pair<float, int>> angles;
        for (int l = 0; l < 10; ++l) {
            const float by = angle(random);
            if (l > 0 && l < 9) angles.emplace_back(by, l);
            network.layers.emplace_back([by](const State& x) {
                return State{std::cos(by) * x[0] - std::sin(by) * x[1],
                             std::sin(by) * x[0] + std::cos(by) * x[1]};
            });
        }
        network.input = {1.0F, 0.0F};
        std::sort(angles.begin(), angles.end());
        const LayerSkipDpOptions options{10, 4, 1, 1};
        SkipSet smallest{10};
        for (int i = 0; i < 4; ++i) smallest.skip_layer(angles[static_cast<std::size_t>(i)].second);
        const LayerSkipDpResult got = choose_layers(network.stack(), options, network.runner());
        CHECK(got.set == smallest);
        CHECK(got.cosine == doctest::Approx(of_all_sets(network, options).front()));
    }
}

TEST_CASE("on random networks the chosen set is near the best of all") {
    int best = 0;
    double lost = 0.0;
    double lost_by_median = 0.0;
    double better_sets = 0.0;
    constexpr int kNetworks = 100;
    for (std::uint64_t seed = 1; seed <= kNetworks; ++seed) {
        const Network network = random_network(seed, 10, 16);
        const LayerSkipDpOptions options{10, 4, 1, 1};
        const std::vector<double> all = of_all_sets(network, options);
        REQUIRE(all.size() == 70);
        const double got = choose_layers(network.stack(), options, network.runner()).cosine;
        const auto better =
            std::count_if(all.begin(), all.end(), [&](double c) { return c > got + 1e-6; });
        best += better == 0 ? 1 : 0;
        better_sets += static_cast<double>(better) / 70.0;
        lost += all.front() - got;
        lost_by_median += all.front() - all[35];
    }
    MESSAGE("the best set of 70 in ", best, " of ", kNetworks,
            " networks; cosine below it on average ", lost / kNetworks, ", the median set's ",
            lost_by_median / kNetworks, "; share of better sets ", better_sets / kNetworks);
    CHECK(best >= kNetworks / 4);
    CHECK(lost < 0.2 * lost_by_median);
    CHECK(better_sets / kNetworks < 0.1);
}

TEST_CASE("a layer is run once for all numbers of skipped layers that still lead to the result") {
    const Network network = random_network(5, 8, 6);
    std::vector<int> rows;
    (void)choose_layers(network.stack(), {8, 3, 1, 1}, network.runner(&rows));
    // Layers 0 and 1 have no row: nothing is skipped before them. Layer 5 has two: with none or one
    // skipped of layers 1 to 4 there are too few left.
    CHECK((rows == std::vector<int>{1, 2, 3, 2, 1, 1}));
    rows.clear();
    CHECK(choose_layers(network.stack(), {8, 0, 1, 1}, network.runner(&rows)).cosine ==
          doctest::Approx(1.0));
    CHECK(rows.empty());
}

TEST_CASE("a cancelled programme says so and runs no further layer") {
    const Network network = random_network(6, 8, 6);
    int calls = 0;
    const LayerSkipDpResult result = choose_layers(
        network.stack(), {8, 3, 1, 1}, [&](int, std::span<float>) { return ++calls < 3; });
    CHECK_FALSE(result.done);
    CHECK(calls == 3);
    CHECK(result.set == SkipSet{});
}

TEST_CASE("states of length zero are far from all others") {
    Network network = random_network(7, 6, 4);
    network.input.assign(4, 0.0F);
    network.layers[0] = [](const State&) { return State{1.0F, 2.0F, 3.0F, 4.0F}; };
    const LayerSkipDpResult result = choose_layers(network.stack(), {6, 2, 0, 1}, network.runner());
    CHECK(result.done);
    CHECK_FALSE(result.set.skips(0));
}
