#include "model/rope_table.hpp"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

namespace paceline {
namespace {

RopeConfig config_of(int dims, float base, RopeScaling scaling) {
    RopeConfig config;
    config.dims = dims;
    config.base = base;
    config.scaling = scaling;
    return config;
}

void check_frequencies(const RopeTable& table, const std::vector<double>& expected) {
    REQUIRE(table.frequencies().size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        CHECK(table.frequencies()[i] == doctest::Approx(expected[i]).epsilon(1e-12));
    }
}

TEST_CASE("unscaled frequencies are the base to the power of -2i/dims") {
    const RopeTable table(config_of(8, 10000.0f, RopeScaling::None));
    CHECK(table.pairs() == 4);
    CHECK(table.magnitude() == 1.0);
    check_frequencies(table, {1.0, 0.1, 0.01, 0.001});
}

TEST_CASE("a position turns each pair by position times frequency") {
    const RopeTable table(config_of(4, 100.0f, RopeScaling::None));
    std::vector<float> cosines(2);
    std::vector<float> sines(2);
    table.fill(0, cosines, sines);
    CHECK(cosines == std::vector<float>{1.0f, 1.0f});
    CHECK(sines == std::vector<float>{0.0f, 0.0f});
    table.fill(3, cosines, sines);
    CHECK(cosines[0] == doctest::Approx(-0.98999250));  // cos 3
    CHECK(sines[0] == doctest::Approx(0.14112001));     // sin 3
    CHECK(cosines[1] == doctest::Approx(0.95533649));   // cos 0.3
    CHECK(sines[1] == doctest::Approx(0.29552021));     // sin 0.3
}

TEST_CASE("far positions keep float32's precision") {
    const RopeTable table(config_of(2, 10000.0f, RopeScaling::None));
    std::vector<float> cosines(1);
    std::vector<float> sines(1);
    table.fill(1'000'000, cosines, sines);
    CHECK(cosines[0] == doctest::Approx(0.93675213).epsilon(1e-7));  // cos 1e6
    CHECK(sines[0] == doctest::Approx(-0.34999350).epsilon(1e-7));   // sin 1e6
}

TEST_CASE("linear scaling divides every frequency by the factor") {
    RopeConfig config = config_of(8, 10000.0f, RopeScaling::Linear);
    config.factor = 4.0f;
    check_frequencies(RopeTable(config), {0.25, 0.025, 0.0025, 0.00025});
}

TEST_CASE("factors divide each frequency by its own") {
    RopeConfig config = config_of(8, 10000.0f, RopeScaling::Factors);
    config.factors = {1.0f, 2.0f, 4.0f, 8.0f};
    const RopeTable table(config);
    CHECK(table.magnitude() == 1.0);
    check_frequencies(table, {1.0, 0.05, 0.0025, 0.000125});
}

// With 8 dimensions, base 10000 and a context of 64, the pair that turns 32 times lies at
// 8 ln(64 / 64 pi) / (2 ln 10000) = -0.5, so the ramp begins at 0; the pair that turns once lies
// at 8 ln(64 / 2 pi) / (2 ln 10000) = 1.008, so it ends at 2. Pair 1 stands in its middle.
TEST_CASE("yarn keeps fast pairs, slows slow pairs and blends between them") {
    RopeConfig config = config_of(8, 10000.0f, RopeScaling::Yarn);
    config.factor = 4.0f;
    config.original_context = 64;
    const RopeTable table(config);
    check_frequencies(table, {1.0, 0.1 * (0.5 / 4.0 + 0.5), 0.01 / 4.0, 0.001 / 4.0});
    CHECK(table.magnitude() == doctest::Approx(1.0 + 0.1 * 1.3862943611198906).epsilon(1e-12));

    std::vector<float> cosines(4);
    std::vector<float> sines(4);
    table.fill(0, cosines, sines);
    CHECK(cosines[3] == doctest::Approx(1.1386294).epsilon(1e-7));
    CHECK(sines[3] == 0.0f);
}

TEST_CASE("yarn takes a magnitude that the file states") {
    RopeConfig config = config_of(8, 10000.0f, RopeScaling::Yarn);
    config.factor = 4.0f;
    config.original_context = 64;
    config.attention_factor = 0.75f;
    CHECK(RopeTable(config).magnitude() == 0.75);
}

TEST_CASE("yarn with a factor of one changes nothing") {
    RopeConfig config = config_of(8, 10000.0f, RopeScaling::Yarn);
    config.factor = 1.0f;
    config.original_context = 64;
    const RopeTable table(config);
    CHECK(table.magnitude() == 1.0);
    check_frequencies(table, {1.0, 0.1, 0.01, 0.001});
}

TEST_CASE("pairs are neighbours or half a rotation apart") {
    CHECK(rope_pair(RopePairing::Adjacent, 8, 3) == std::pair{6, 7});
    CHECK(rope_pair(RopePairing::Halves, 8, 3) == std::pair{3, 7});
}

}  // namespace
}  // namespace paceline
