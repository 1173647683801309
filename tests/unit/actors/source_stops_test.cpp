// The stop rules of a draft (stop_policy.hpp) on chains of a source without a model, prompt lookup
// for example.
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/actors/draft_bench.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): the same

namespace {

/// Chains of one token, with these probabilities.
class WeighedSource final : public DraftSource {
public:
    explicit WeighedSource(std::vector<float> probabilities)
        : probabilities_{std::move(probabilities)} {}
    [[nodiscard]] DraftCost cost() const override { return DraftCost::Instant; }
    void commit(std::span<const TokenId> /*tokens*/) override {}
    [[nodiscard]] std::vector<Candidate> weigh(std::span<const TokenId> /*path*/,
                                               std::int32_t /*gamma*/,
                                               const CancelToken& /*cancel*/) override {
        std::vector<Candidate> chain;
        for (const float p : probabilities_) chain.push_back({.token = 3, .log_prob = std::log(p)});
        return chain;
    }

private:
    std::vector<float> probabilities_;
};

DraftTools with_weights(const std::vector<float>& probabilities) {
    DraftTools tools;
    tools.source = [probabilities](const Request&) {
        return std::make_unique<WeighedSource>(probabilities);
    };
    return tools;
}

/// Candidates of the first proposal of a source with these probabilities.
std::uint32_t proposed(const GrowthRule& growth, const std::vector<float>& probabilities) {
    DraftBench bench{plan_of(growth), with_weights(probabilities)};
    Request request;
    request.text = {1, 2};
    request.context = 100;
    bench.begin(request);
    return bench.proposals().at(0).count;
}

}  // namespace

TEST_CASE("a source's chain ends behind an improbable token, or at the end of an improbable path") {
    const std::vector<float> chain{0.9F, 0.9F, 0.5F, 0.9F, 0.9F};
    for (const DraftPace pace : {DraftPace::Sequential, DraftPace::Ahead}) {
        CHECK(proposed({.pace = pace}, chain) == 5);
        CHECK(proposed({.pace = pace, .confidence_min = 0.6F}, chain) == 3);
        CHECK(proposed({.pace = pace, .draft_reach_min = 0.85F}, chain) == 2);
        CHECK(proposed({.pace = pace, .draft_reach_min = 0.4F}, chain) == 4);
    }
}

TEST_CASE("the threshold that ends a source's chains follows the accepted candidates") {
    // Chains of 4, of which a threshold between 0.73 and 0.81 lets through 3.
    const GrowthRule growth{.threshold_adapts = true, .draft_reach_min = 0.7F};
    DraftBench bench{plan_of(growth), with_weights({0.9F, 0.9F, 0.9F, 0.9F})};
    Request request;
    request.text = {1, 2};
    request.context = 600;
    bench.begin(request);
    CHECK(bench.proposals().at(0).count == 4);
    for (int i = 0; i < 100; ++i) bench.verdict({7}, 4);
    CHECK(bench.proposals().back().count == 3);
    for (int i = 0; i < 100; ++i) bench.verdict({3, 3, 3, 7}, 3);
    CHECK(bench.proposals().back().count == 4);
}
