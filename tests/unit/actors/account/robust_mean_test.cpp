#include "actors/account/robust_mean.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

TEST_CASE("of the first three values an interrupted one does not count, whichever it is") {
    for (int interrupted = 0; interrupted < 3; ++interrupted) {
        RobustMean mean;
        CHECK_FALSE(mean.known());
        for (int i = 0; i < 3; ++i) mean.add(i == interrupted ? 9000.0 : 1000.0);
        CHECK(mean.mean() == 1000.0);
    }
}

TEST_CASE("of two values the smaller one counts: interruptions make times longer") {
    RobustMean mean;
    mean.add(9000.0);
    CHECK(mean.mean() == 9000.0);
    mean.add(1000.0);
    CHECK(mean.mean() == 1000.0);
}

TEST_CASE("later an interrupted value moves the mean a little, a lasting change wholly") {
    RobustMean mean;
    for (int i = 0; i < 30; ++i) mean.add(1000.0);
    mean.add(1e6);
    CHECK(mean.mean() == doctest::Approx(1000.0 + 2000.0 / RobustMean::kMemory));
    for (int i = 0; i < 100; ++i) mean.add(2000.0);
    CHECK(mean.mean() == doctest::Approx(2000.0).epsilon(0.01));
}
