#include "actors/decoding/adaptive_stops.hpp"

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

TEST_CASE("thresholds that do not adapt stay what the rule says, whatever is accepted") {
    AdaptiveStops stops{{.confidence_min = 0.4F, .draft_reach_min = 1e-3F}};
    for (int i = 0; i < 100; ++i) stops.verified(0, 4, true);
    CHECK(stops.now().confidence_min == 0.4F);
    CHECK(stops.now().product_min == 1e-3F);
}

TEST_CASE("the threshold that is shown is that which adapts; without one there is none") {
    CHECK(AdaptiveStops{{.confidence_min = 0.4F, .product_min = 0.3F}, 0.9}.threshold() == 0.3F);
    CHECK(AdaptiveStops{{.confidence_min = 0.4F}, std::nullopt}.threshold() == 0.4F);
    AdaptiveStops none{{}, 0.9};
    for (int i = 0; i < 100; ++i) none.verified(0, 4, true);
    CHECK(none.threshold() == 0.0F);
    CHECK(none.now().confidence_min == 0.0F);
}

TEST_CASE("the threshold of a path adapts where there is one, else that of a token") {
    AdaptiveStops token{
        {.confidence_min = 0.4F, .threshold_adapts = true, .draft_reach_min = 1e-3F}};
    AdaptiveStops path{{.confidence_min = 0.1F, .threshold_adapts = true, .draft_reach_min = 0.3F}};
    for (int i = 0; i < 100; ++i) {
        token.verified(0, 4, true);
        path.verified(0, 4, true);
    }
    CHECK(token.now().confidence_min > 0.45F);
    CHECK(token.now().product_min == 1e-3F);
    CHECK(path.now().product_min > 0.35F);
    CHECK(path.now().confidence_min == 0.1F);
}

TEST_CASE("a threshold is lowered only by chains that it has ended, and only above the target") {
    const GrowthRule rule{
        .confidence_min = 0.4F, .threshold_adapts = true, .acceptance_target = 0.5};
    AdaptiveStops ended{rule};
    AdaptiveStops full{rule};
    AdaptiveStops wrong{rule};
    for (int i = 0; i < 20; ++i) {
        ended.verified(3, 4, true);
        full.verified(3, 4, false);
        wrong.verified(1, 4, true);
    }
    const float begun = full.now().confidence_min;
    CHECK(ended.now().confidence_min < begun);
    CHECK(wrong.now().confidence_min > begun);
}
