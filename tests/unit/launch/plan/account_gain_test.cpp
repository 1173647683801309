#include "launch/plan/account_gain.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

PipelineConfig config_of(const char* method) {
    Result<PipelineConfig> config = method_config(method);
    REQUIRE(config.ok());
    return std::move(config).value();
}

/// `plain`, `took`: milliseconds. A plain token takes one.
AccountFigures figures(double plain, double took, std::uint32_t incarnation = 1) {
    return {.plain_us = 1000 * plain,
            .took_us = 1000 * took,
            .plain_token_us = 1000,
            .incarnation = incarnation};
}

VerdictTally tally(std::int64_t emitted, std::int64_t drafts = 0, std::int64_t accepted = 0) {
    VerdictTally verdicts;
    verdicts.emitted = emitted;
    verdicts.drafts = drafts;
    verdicts.accepted = accepted;
    return verdicts;
}

}  // namespace

TEST_CASE("each look has the gain of the tokens since the one before it") {
    AccountGain gain{config_of("speculative")};
    const auto first = gain.since_last(figures(100, 50), tally(100, 30, 60));
    REQUIRE(first.has_value());
    CHECK(first->gain == doctest::Approx(2.0));
    CHECK(first->tokens_per_second == doctest::Approx(2000));
    CHECK(first->acceptance == doctest::Approx(60.0 / 90.0));
    CHECK(first->runs == 1);
    const auto second = gain.since_last(figures(160, 110), tally(160, 50, 80));
    REQUIRE(second.has_value());
    CHECK(second->gain == doctest::Approx(1.0));
    CHECK(second->acceptance == doctest::Approx(0.5));
}

TEST_CASE("too few tokens show nothing, and count at the next look") {
    AccountGain gain{config_of("speculative")};
    CHECK(!gain.since_last(figures(47, 30), tally(47)));
    const auto both = gain.since_last(figures(48, 40), tally(48));
    REQUIRE(both.has_value());
    CHECK(both->gain == doctest::Approx(1.2));
    CHECK(!gain.since_last(figures(48, 40), tally(48)));
    CHECK(!AccountGain{config_of("speculative")}.since_last({}, tally(48)));
}

TEST_CASE("the account of a first segment that was replaced begins at zero") {
    AccountGain gain{config_of("speculative")};
    REQUIRE(gain.since_last(figures(500, 250, 1), tally(500)).has_value());
    const auto next = gain.since_last(figures(60, 40, 2), tally(560));
    REQUIRE(next.has_value());
    CHECK(next->gain == doctest::Approx(1.5));
    // Its sums may have passed those of the one before it by the next look.
    const auto longer = gain.since_last(figures(300, 100, 3), tally(860));
    REQUIRE(longer.has_value());
    CHECK(longer->gain == doctest::Approx(3.0));
}

TEST_CASE("a target in parts shows no gain over plain decoding, nor one that nothing drafts for") {
    for (const char* method : {"fold", "autoregressive"}) {
        AccountGain gain{config_of(method)};
        CHECK(!gain.since_last(figures(500, 250), tally(500)));
    }
}

TEST_CASE("a draft that computes ahead shows no gain on a CPU, whose cores it shares") {
    PipelineConfig config = config_of("pearl");
    CHECK(!AccountGain{config}.since_last(figures(500, 250), tally(500)));
    for (StageConfig& stage : config.stages) stage.device.gpu = 0;
    CHECK(AccountGain{config}.since_last(figures(500, 250), tally(500)).has_value());
    CHECK(AccountGain{config_of("pearl-lookahead")}.since_last(figures(500, 250), tally(500)));
}
