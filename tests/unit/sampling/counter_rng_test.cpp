// Philox4x32-10 against the known answers that its authors publish with Random123.
#include "model/sampling/counter_rng.hpp"

#include <doctest/doctest.h>

using paceline::philox;
using paceline::PhiloxCounter;

TEST_CASE("philox gives the published answers") {
    CHECK(philox({0, 0, 0, 0}, {0, 0}) ==
          PhiloxCounter{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U});
    CHECK(
        philox({0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU}, {0xffffffffU, 0xffffffffU}) ==
        PhiloxCounter{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU});
    CHECK(
        philox({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}, {0xa4093822U, 0x299f31d0U}) ==
        PhiloxCounter{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U});
}

TEST_CASE("philox is known at compile time") {
    static_assert(philox({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5U);
    CHECK(philox({0, 0, 0, 0}, {0, 1}) != philox({0, 0, 0, 0}, {1, 0}));
}
