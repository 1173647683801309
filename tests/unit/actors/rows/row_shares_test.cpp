// How the rows of a batch are shared among requests that decode and prompts.
#include "actors/segment/rows/row_shares.hpp"

#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

RowClaim verify(std::uint32_t rows) {
    return {.prompt = false, .wanted = rows};
}

RowClaim prompt(std::size_t left, std::uint64_t arrived, std::uint32_t most = 64) {
    return {.prompt = true,
            .wanted = static_cast<std::uint32_t>(std::min<std::size_t>(left, most)),
            .left = left,
            .arrived = arrived};
}

std::vector<std::uint32_t> shared(std::vector<RowClaim> claims, const RowLimits& limits) {
    share_rows(claims, limits);
    std::vector<std::uint32_t> granted;
    for (const RowClaim& each : claims) granted.push_back(each.granted);
    return granted;
}

using Rows = std::vector<std::uint32_t>;
const RowLimits kOfCpu{.batch = 64, .verify_max = 64, .prompts_least = 16};

}  // namespace

TEST_CASE("requests that decode share the rows evenly, as far as they want them") {
    CHECK(shared({verify(33), verify(2), verify(33)}, kOfCpu) == Rows{31, 2, 31});
    CHECK(shared({verify(3), verify(2)}, kOfCpu) == Rows{3, 2});
    CHECK(shared(std::vector<RowClaim>(70, verify(4)), kOfCpu)[63] == 1);
    CHECK(shared(std::vector<RowClaim>(70, verify(4)), kOfCpu)[64] == 0);
}

TEST_CASE("rows that are only observed get what is left when all others have theirs") {
    const auto observing = [](std::uint32_t rows, std::uint32_t yields) {
        RowClaim claim = verify(rows);
        claim.yields = yields;
        return claim;
    };
    CHECK(shared({observing(56, 27), verify(20), verify(20)}, kOfCpu) == Rows{24, 20, 20});
    CHECK(shared({observing(56, 27), verify(4)}, kOfCpu) == Rows{56, 4});
    CHECK(shared({observing(40, 30), observing(40, 39)}, kOfCpu) == Rows{37, 27});
    CHECK(shared({observing(56, 55), verify(33), verify(33)}, kOfCpu) == Rows{1, 32, 31});
}

TEST_CASE("prompts get their share beside others that decode, and all rows where none does") {
    CHECK(shared({verify(33), verify(33), prompt(100, 1)}, kOfCpu) == Rows{24, 24, 16});
    CHECK(shared({verify(33), verify(33), prompt(5, 1)}, kOfCpu) == Rows{30, 29, 5});
    CHECK(shared({verify(1), prompt(100, 1)}, kOfCpu) == Rows{1, 16});
    CHECK(shared({prompt(100, 1)}, kOfCpu) == Rows{64});
    RowLimits limits = kOfCpu;
    limits.beside = [](std::uint32_t verify_rows) { return 30 - verify_rows; };
    CHECK(shared({verify(4), prompt(100, 1)}, limits) == Rows{4, 26});
    CHECK(shared({verify(30), prompt(100, 1)}, limits) == Rows{30, 16});
}

TEST_CASE("of prompts the shortest goes first, and the oldest gets a quarter") {
    CHECK(shared({prompt(400, 1), prompt(20, 3), prompt(30, 2)}, kOfCpu) == Rows{16, 20, 28});
    CHECK(shared({prompt(400, 2), prompt(20, 1)}, kOfCpu) == Rows{44, 20});
}

TEST_CASE("a prompt of any length ends, however many short ones keep coming") {
    std::vector<RowClaim> claims{prompt(4000, 0), prompt(10, 1), prompt(10, 2), verify(4)};
    std::uint64_t arrived = 2;
    int batches = 0;
    while (claims[0].left > 0) {
        REQUIRE(++batches <= 1000);  // 4 of 16 rows
        share_rows(claims, kOfCpu);
        claims[0] = prompt(claims[0].left - claims[0].granted, 0);
        for (const std::size_t i : {1U, 2U}) claims[i] = prompt(10, ++arrived);
    }
    CHECK(batches > 900);
}

TEST_CASE("no row is granted twice or beyond a limit, whatever is asked for") {
    std::mt19937_64 random{7};
    for (int round = 0; round < 20000; ++round) {
        RowLimits limits{.batch = 2 + static_cast<std::uint32_t>(random() % 600)};
        limits.verify_max = 1 + static_cast<std::uint32_t>(random() % 64);
        limits.prompts_least = 1 + static_cast<std::uint32_t>(random() % (limits.batch - 1));
        if (random() % 2 == 0) limits.beside = [&](std::uint32_t) { return random() % 700; };
        std::vector<RowClaim> claims;
        for (std::uint64_t i = random() % 70; i > 0; --i) {
            claims.push_back(random() % 2 == 0 ? verify(static_cast<std::uint32_t>(random() % 40))
                                               : prompt(1 + random() % 3000, random() % 9, 512));
        }
        share_rows(claims, limits);
        std::uint32_t verified = 0;
        std::uint32_t rows = 0;
        for (const RowClaim& each : claims) {
            REQUIRE(each.granted <= each.wanted);
            rows += each.granted;
            if (!each.prompt) verified += each.granted;
        }
        REQUIRE(rows <= limits.batch);
        REQUIRE(verified <= verify_room(claims, limits));
    }
}
