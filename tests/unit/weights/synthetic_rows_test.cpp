// Synthetic rows: mean and variance, resolution of each type, dependence on seed, row and column.
#include "model/weights/synthetic/synthetic_rows.hpp"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

namespace paceline {
namespace {

constexpr StoredType kTypes[] = {StoredType::F32,  StoredType::F16,  StoredType::BF16,
                                 StoredType::Q8_0, StoredType::Q4_0, StoredType::Q4_1};

/// Row `row` as a reader of the stored type sees it, padding included.
std::vector<float> row_of(StoredType type, std::uint64_t seed, std::int64_t row, int columns) {
    const TypeTraits of = traits(type);
    const int padded = random_row_columns(type, columns);
    std::vector<std::byte> bytes(static_cast<std::size_t>(padded) / of.block_elements *
                                 of.block_bytes);
    random_row(type, seed, row, columns, bytes);
    TensorView tensor{"synthetic", type, 1, padded};
    tensor.data = bytes.data();
    tensor.bytes = bytes.size();
    std::vector<float> values(static_cast<std::size_t>(padded));
    dequantize_row(tensor, 0, values);
    return values;
}

TEST_CASE("synthetic rows have mean 0 and variance 1 / columns in every type") {
    constexpr int kColumns = 4096;
    for (const StoredType type : kTypes) {
        CAPTURE(traits(type).name);
        double sum = 0.0;
        double squares = 0.0;
        for (std::int64_t row = 0; row < 8; ++row) {
            for (const float value : row_of(type, 7, row, kColumns)) {
                sum += static_cast<double>(value);
                squares += static_cast<double>(value) * static_cast<double>(value);
            }
        }
        CHECK(squares / 8 == doctest::Approx(1.0).epsilon(0.03));
        // Q4_0 has no number in the middle of its sixteen: half a step is its mean.
        const double mean = type == StoredType::Q4_0 ? -0.5 / 4.61 : 0.0;
        CHECK(sum / (8 * kColumns) * std::sqrt(kColumns) == doctest::Approx(mean).epsilon(0.03));
    }
}

TEST_CASE(
    "synthetic rows of block types have a mean near 0 and variance 1 / columns, and are "
    "repeatable") {
    constexpr int kColumns = 4096;
    for (const StoredType type :
         {StoredType::Q5_0, StoredType::Q5_1, StoredType::Q2_K, StoredType::Q3_K, StoredType::Q4_K,
          StoredType::Q5_K, StoredType::Q6_K, StoredType::IQ4_NL, StoredType::IQ4_XS,
          StoredType::MXFP4}) {
        CAPTURE(traits(type).name);
        double sum = 0.0;
        double squares = 0.0;
        for (std::int64_t row = 0; row < 16; ++row) {
            const std::vector<float> values = row_of(type, 7, row, kColumns);
            CHECK(values == row_of(type, 7, row, kColumns));
            CHECK(values != row_of(type, 8, row, kColumns));
            for (const float value : values) {
                sum += static_cast<double>(value);
                squares += static_cast<double>(value) * static_cast<double>(value);
            }
        }
        // The scale is rounded to a power of two: the variance is off by a factor of at most 2.
        const double most = type == StoredType::MXFP4 ? 2.1 : 1.05;
        CHECK(squares / 16 < most);
        CHECK(squares / 16 > 1.0 / most);
        CHECK(std::fabs(sum / (16 * kColumns) * std::sqrt(kColumns)) < 0.1);
    }
}

TEST_CASE("types differ in the resolution of a number, not in the number") {
    constexpr int kColumns = 96;
    const std::vector<float> exact = row_of(StoredType::F32, 7, 3, kColumns);
    const float deviation = 1.0f / std::sqrt(static_cast<float>(kColumns));
    for (const StoredType type : kTypes) {
        CAPTURE(traits(type).name);
        const std::vector<float> values = row_of(type, 7, 3, kColumns);
        const bool four = type == StoredType::Q4_0 || type == StoredType::Q4_1;
        const float step = deviation * (four ? 0.25f : 0.02f);
        for (std::size_t c = 0; c < exact.size(); ++c)
            CHECK(std::fabs(values[c] - exact[c]) < step);
    }
}

TEST_CASE(
    "numbers follow from seed, tensor, row and column, and columns after the last are zeros") {
    const std::vector<float> row = row_of(StoredType::Q8_0, 7, 3, 40);
    REQUIRE(row.size() == 64);
    CHECK(row == row_of(StoredType::Q8_0, 7, 3, 40));
    CHECK(row != row_of(StoredType::Q8_0, 7, 4, 40));
    CHECK(row != row_of(StoredType::Q8_0, 8, 3, 40));
    for (std::size_t c = 40; c < 64; ++c) CHECK(row[c] == 0.0f);
    CHECK(random_seed(1, "blk.0.attn_q.weight") == random_seed(1, "blk.0.attn_q.weight"));
    CHECK(random_seed(1, "blk.0.attn_q.weight") != random_seed(1, "blk.1.attn_q.weight"));
    CHECK(random_seed(1, "blk.0.attn_q.weight") != random_seed(2, "blk.0.attn_q.weight"));
}

}  // namespace
}  // namespace paceline
