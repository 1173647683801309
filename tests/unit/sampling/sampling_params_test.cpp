// validate(): every field is refused by name, with its value.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "model/sampling/sampling.hpp"

using namespace paceline;

TEST_CASE("the defaults and the usual settings are allowed") {
    CHECK(validate({}, 10).ok());
    CHECK(validate({.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}, 10).ok());
    CHECK(validate({.top_k = 1000000, .penalty_window = -1}, 10).ok());
    CHECK(validate({.logit_bias = {{0, 1.0f}, {9, -std::numeric_limits<float>::infinity()}}}, 10)
              .ok());
}

TEST_CASE("a bad field is refused with its name and value") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    struct Case {
        SamplingParams params;
        const char* field;
        const char* value;
    };
    const std::vector<Case> cases{
        {{.temperature = -0.5f}, "temperature", "-0.5"},
        {{.temperature = nan}, "temperature", "nan"},
        {{.temperature = infinity}, "temperature", "inf"},
        {{.temperature = 1e-7f}, "temperature", "1e-07"},
        {{.top_k = -3}, "top_k", "-3"},
        {{.top_p = 0.0f}, "top_p", "0"},
        {{.top_p = 1.5f}, "top_p", "1.5"},
        {{.top_p = nan}, "top_p", "nan"},
        {{.min_p = 1.0f}, "min_p", "1"},
        {{.min_p = -0.25f}, "min_p", "-0.25"},
        {{.repetition_penalty = 0.0f}, "repetition_penalty", "0"},
        {{.repetition_penalty = nan}, "repetition_penalty", "nan"},
        {{.presence_penalty = infinity}, "presence_penalty", "inf"},
        {{.frequency_penalty = nan}, "frequency_penalty", "nan"},
        {{.penalty_window = -2}, "penalty_window", "-2"},
        {{.penalty_begin = -1}, "penalty_begin", "-1"},
        {{.logit_bias = {{10, 1.0f}}}, "logit_bias", "10"},
        {{.logit_bias = {{-1, 1.0f}}}, "logit_bias", "-1"},
        {{.logit_bias = {{4, 1.0f}, {4, 1.0f}}}, "logit_bias", "4"},
        {{.logit_bias = {{7, nan}}}, "logit_bias of token 7", "nan"},
        {{.logit_bias = {{7, infinity}}}, "logit_bias of token 7", "inf"},
    };
    for (const Case& c : cases) {
        const Status status = validate(c.params, 10);
        CAPTURE(c.field);
        CAPTURE(c.value);
        REQUIRE_FALSE(status.ok());
        CHECK(status.error().code == Errc::BadArgument);
        CHECK(status.error().what.find(c.field) != std::string::npos);
        CHECK(status.error().what.find(c.value) != std::string::npos);
    }
}
