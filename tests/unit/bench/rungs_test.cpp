// A wrong result on the ladder of product kernels makes the GPU bench fail: other bits, or a NaN.
#include "bench/cuda/rungs.hpp"

#include <cstring>
#include <limits>

#include <doctest/doctest.h>

#include "bench/cuda/report.hpp"

namespace paceline::bench {
namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

/// A ladder of two products with two row counts each, all rungs of a product and count alike.
std::vector<Rung> right_ladder() {
    std::vector<Rung> rungs;
    for (const char* product : {"q k v", "down"}) {
        for (const int rows : {1, 8}) {
            const std::uint64_t checksum = 100 * static_cast<std::uint64_t>(rows) + product[0];
            for (const char* choice : {"16 outputs x 8 rows", "square 64 x 64", "square 128 x 128"})
                rungs.push_back({product, rows, choice, checksum, 0});
        }
    }
    return rungs;
}

TEST_CASE("rungs with the bits of the first of their product and rows have no fault") {
    const std::vector<Rung> rungs = right_ladder();
    CHECK(faults_of(rungs).empty());
    for (std::size_t i = 0; i < rungs.size(); ++i) CHECK(equals_first(rungs, i));
    CHECK(faults_of({}).empty());
}

TEST_CASE("a rung with other bits is a fault that names product, rows and choice") {
    std::vector<Rung> rungs = right_ladder();
    rungs[4].checksum ^= 1U;
    const std::vector<std::string> faults = faults_of(rungs);
    REQUIRE(faults.size() == 1);
    CHECK(faults[0] == "q k v, 8 rows, square 64 x 64: other bits than 16 outputs x 8 rows");
    CHECK_FALSE(equals_first(rungs, 4));
    CHECK(equals_first(rungs, 3));
    CHECK(equals_first(rungs, 5));
}

TEST_CASE("NaN is a fault even where all rungs agree on it") {
    std::vector<Rung> rungs = right_ladder();
    for (Rung& rung : rungs) {
        if (rung.product == "down" && rung.rows == 1) rung.nans = 3;
    }
    const std::vector<std::string> faults = faults_of(rungs);
    REQUIRE(faults.size() == 3);
    CHECK(faults[0] == "down, 1 rows, 16 outputs x 8 rows: 3 results are NaN");
}

TEST_CASE(
    "NaN is found among floats and among bf16 numbers, infinities and other numbers are none") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinite = std::numeric_limits<float>::infinity();
    CHECK(count_nan_floats(bytes_of<float>({0.0f, nan, -infinite, -nan, 1e38f})) == 2);
    CHECK(count_nan_bf16(bytes_of<std::uint16_t>(
              {0x0000, 0x7FC0, 0xFF80, 0x7F80, 0x7F81, 0xFFFF, 0x3F80})) == 3);
}

TEST_CASE("a checksum depends on every byte and on their order") {
    const std::vector<std::byte> bytes = bytes_of<std::uint16_t>({1, 2, 3, 4});
    const std::uint64_t sum = mixed(kChecksumBegin, bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        std::vector<std::byte> other = bytes;
        other[i] ^= std::byte{1};
        CHECK(mixed(kChecksumBegin, other) != sum);
    }
    CHECK(mixed(kChecksumBegin, bytes_of<std::uint16_t>({2, 1, 3, 4})) != sum);
    const std::span<const std::byte> all = bytes;
    CHECK(mixed(mixed(kChecksumBegin, all.first(3)), all.subspan(3)) == sum);
}

TEST_CASE("a report with a fault or a figure that is no finite number ends in an error") {
    Report right;
    right.figure("copy.bytes_per_s", 4e12);
    CHECK(right.verdict().ok());

    Report wrong;
    std::vector<Rung> rungs = right_ladder();
    rungs[1].checksum ^= 1U;
    for (const std::string& fault : faults_of(rungs)) wrong.fault("ladder: " + fault);
    REQUIRE_FALSE(wrong.verdict().ok());
    CHECK(wrong.verdict().error().what.find("ladder: q k v, 1 rows, square 64 x 64") !=
          std::string::npos);

    for (const double value :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        Report no_number;
        no_number.figure("batch.share.1.512", value);
        REQUIRE_FALSE(no_number.verdict().ok());
        CHECK(no_number.verdict().error().what.find("batch.share.1.512") != std::string::npos);
    }
}

}  // namespace
}  // namespace paceline::bench
