#include <cmath>
#include <optional>

#include <doctest/doctest.h>

#include "tests/unit/kernels/kernel_fixture.hpp"
#include "tests/unit/weights/gguf_builder.hpp"

namespace paceline {
namespace {

using testing::OwnedMatrix;
using testing::OwnedTensor;
using testing::random_floats;

/// Random blocks of a quantised type: random quants, small finite scales.
std::vector<std::byte> random_blocks(std::mt19937& rng, StoredType type, int rows, int cols) {
    const TypeTraits t = traits(type);
    const std::size_t blocks =
        static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) / t.block_elements;
    std::vector<std::byte> bytes(blocks * t.block_bytes);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    for (std::size_t block = 0; block < blocks; ++block) {
        const std::uint16_t d = float_to_half(0.01f + 0.001f * static_cast<float>(rng() % 50));
        const std::uint16_t m = float_to_half(-0.5f + 0.02f * static_cast<float>(rng() % 50));
        const test::detail::HalfPlaces places = test::detail::half_places(type);
        std::byte* at = bytes.data() + block * t.block_bytes;
        if (places.scale >= 0) std::memcpy(at + places.scale, &d, 2);
        if (places.minimum >= 0) std::memcpy(at + places.minimum, &m, 2);
        if (type == StoredType::MXFP4) *at = static_cast<std::byte>(110 + rng() % 20);
    }
    return bytes;
}

TEST_CASE("a quantised block packed to its own type keeps every value exactly") {
    std::mt19937 rng{1};
    const std::pair<StoredType, PackedType> kinds[] = {
        {StoredType::Q8_0, PackedType::Int8},   {StoredType::Q5_0, PackedType::Int8},
        {StoredType::IQ4_NL, PackedType::Int8}, {StoredType::MXFP4, PackedType::Int8},
        {StoredType::Q4_1, PackedType::Q4},     {StoredType::Q4_0, PackedType::Q4Sym}};
    for (const auto& [stored, packed] : kinds) {
        CAPTURE(static_cast<int>(stored));
        const int rows = 37;
        const int cols = 96;
        const std::vector<std::byte> bytes = random_blocks(rng, stored, rows, cols);
        const TensorView view{"w", stored, rows, cols, bytes.data(), bytes.size()};
        const OwnedMatrix matrix{view, packed};
        std::vector<float> want(cols);
        std::vector<float> got(cols);
        for (int r = 0; r < rows; ++r) {
            dequantize_row(view, r, want);
            unpack_row(matrix.matrix, r, got);
            CHECK(testing::equal_bits(got, want));
        }
    }
}

/// Row `row`, the last one of a matrix of one tile, has a scale that is `wrong`.
std::optional<std::int64_t> wrong_row(StoredType type, PackedType packed, std::uint16_t wrong) {
    std::mt19937 rng{4};
    const int rows = 3;
    const int cols = 256;
    std::vector<std::byte> bytes = random_blocks(rng, type, rows, cols);
    const std::size_t row = 2 * bytes.size() / rows;
    if (type == StoredType::MXFP4) {
        bytes[row] = std::byte{255};
    } else {
        const int at = test::detail::half_places(type).scale;
        std::memcpy(bytes.data() + row + at, &wrong, sizeof wrong);
    }
    const TensorView view{"w", type, rows, cols, bytes.data(), bytes.size()};
    PackedMatrix matrix{packed, rows, cols, nullptr};
    std::vector<std::byte> data(matrix.bytes());
    matrix.data = data.data();
    std::vector<float> scratch(static_cast<std::size_t>(matrix.groups()) * kGroup);
    return pack_tiles(view, matrix, 0, 1, scratch);
}

TEST_CASE("a scale that is not finite is found in every block type, whatever it is packed to") {
    for (const StoredType type :
         {StoredType::Q8_0, StoredType::Q4_0, StoredType::Q4_1, StoredType::Q5_0, StoredType::Q5_1,
          StoredType::Q2_K, StoredType::Q3_K, StoredType::Q4_K, StoredType::Q5_K, StoredType::Q6_K,
          StoredType::IQ4_NL, StoredType::IQ4_XS, StoredType::MXFP4}) {
        for (const PackedType packed :
             {PackedType::F32, PackedType::BF16, PackedType::Int8, PackedType::Q4}) {
            CAPTURE(traits(type).name);
            CAPTURE(name(packed));
            CHECK(wrong_row(type, packed, 0x7C00).value_or(-1) == 2);
            CHECK(wrong_row(type, packed, 0xFE01).value_or(-1) == 2);
        }
    }
}

TEST_CASE("numbers whose scale outgrows a float16 are not packed to int8 or q4") {
    std::vector<float> values(64, 1.0f);
    values[40] = 3e7f;  // / 127 is above 65504
    const OwnedTensor tensor{values, 1, 64};
    for (const PackedType type : {PackedType::Int8, PackedType::Q4}) {
        PackedMatrix matrix{type, 1, 64, nullptr};
        std::vector<std::byte> data(matrix.bytes());
        matrix.data = data.data();
        std::vector<float> scratch(64);
        CHECK(pack_tiles(tensor.view, matrix, 0, 1, scratch).has_value());
    }
}

TEST_CASE("float32 survives packing to f32 bit by bit and to bf16 to nearest even") {
    std::mt19937 rng{2};
    for (const int cols : {1, 31, 32, 33, 70}) {
        const OwnedTensor tensor{random_floats(rng, static_cast<std::size_t>(19 * cols)), 19, cols};
        CHECK(
            testing::equal_bits(OwnedMatrix(tensor.view, PackedType::F32).values(), tensor.values));
        const std::vector<float> rounded = OwnedMatrix(tensor.view, PackedType::BF16).values();
        for (std::size_t i = 0; i < rounded.size(); ++i) {
            CHECK(rounded[i] == bfloat_to_float(float_to_bfloat(tensor.values[i])));
        }
    }
}

/// Whether the numbers of `stored` lie in their tiles at byte `place(row, k)`, and zeros where
/// there is no row or column.
template <class Place>
bool lie_at(const PackedMatrix& matrix, const std::vector<std::uint16_t>& stored, Place place) {
    bool equal = true;
    for (int row = 0; row < matrix.tiles() * kTileRows; ++row) {
        const std::byte* tile =
            matrix.data + static_cast<std::size_t>(row / kTileRows) * matrix.tile_bytes();
        for (int k = 0; k < matrix.groups() * kGroup; ++k) {
            std::uint16_t bits = 0;
            std::memcpy(&bits, tile + place(row, k), sizeof bits);
            const bool inside = row < matrix.rows && k < matrix.cols;
            const auto at = static_cast<std::size_t>(row * matrix.cols + k);
            equal = equal && bits == (inside ? stored[at] : 0);
        }
    }
    return equal;
}

TEST_CASE("stored bfloat16 is packed as it is, with zeros where a tile has no row or column") {
    std::mt19937 rng{5};
    for (const int cols : {1, 31, 33, 70, 128}) {
        for (const int rows : {1, 17}) {
            CAPTURE(cols);
            CAPTURE(rows);
            std::vector<std::uint16_t> stored(static_cast<std::size_t>(rows * cols));
            for (std::uint16_t& bits : stored)
                bits = float_to_bfloat(static_cast<float>(rng() % 2000) - 1000.0f);
            const auto bytes = std::as_bytes(std::span(stored));
            const TensorView view{"w", StoredType::BF16, rows, cols, bytes.data(), bytes.size()};
            PackedMatrix matrix{PackedType::BF16, rows, cols, nullptr};
            std::vector<std::byte> data(matrix.bytes(), std::byte{0xFF});
            matrix.data = data.data();
            CHECK_FALSE(pack_tiles(view, matrix, 0, matrix.tiles(), {}).has_value());
            // Pair of inputs, lane, input: the drawing of packed_matrix.hpp.
            CHECK(lie_at(matrix, stored, [](int row, int k) {
                return k / 2 * 64 + row % kTileRows * 4 + k % 2 * 2;
            }));
        }
    }
}

TEST_CASE("a bfloat16 that is not finite is found in either half of a word") {
    for (const std::uint16_t wrong : {std::uint16_t{0x7F80}, std::uint16_t{0xFFC0}}) {
        for (const std::size_t column : {40U, 41U}) {
            std::vector<std::uint16_t> stored(3 * 64, 0x3F80);
            stored[64 + column] = wrong;
            const auto bytes = std::as_bytes(std::span(stored));
            const TensorView view{"w", StoredType::BF16, 3, 64, bytes.data(), bytes.size()};
            PackedMatrix matrix{PackedType::BF16, 3, 64, nullptr};
            std::vector<std::byte> data(matrix.bytes());
            matrix.data = data.data();
            CHECK(pack_tiles(view, matrix, 0, 1, {}).value_or(-1) == 1);
        }
    }
}

TEST_CASE("stored float16 is packed as it is, every finite number bit for bit") {
    const std::vector<std::uint16_t> stored = testing::finite_halves();
    const auto bytes = std::as_bytes(std::span(stored));
    for (const int cols : {1, 31, 33, 70, 1024}) {
        CAPTURE(cols);
        const int rows = static_cast<int>(stored.size()) / cols;
        const TensorView view{"w", StoredType::F16, rows, cols, bytes.data(), bytes.size()};
        const OwnedMatrix matrix{view, PackedType::F16};
        std::vector<float> want(static_cast<std::size_t>(rows * cols));
        for (std::size_t i = 0; i < want.size(); ++i) want[i] = half_to_float(stored[i]);
        CHECK(testing::equal_bits(matrix.values(), want));
    }
}

TEST_CASE("packed float16 has an input's 16 outputs side by side, and zeros beyond the matrix") {
    std::mt19937 rng{6};
    constexpr int kCols = 70;
    constexpr int kRows = 17;
    std::vector<std::uint16_t> stored(std::size_t{kRows} * kCols);
    for (std::uint16_t& bits : stored) bits = static_cast<std::uint16_t>(rng() % 0x7C00U);
    const auto bytes = std::as_bytes(std::span(stored));
    const TensorView view{"w", StoredType::F16, kRows, kCols, bytes.data(), bytes.size()};
    PackedMatrix matrix{PackedType::F16, kRows, kCols, nullptr};
    std::vector<std::byte> data(matrix.bytes(), std::byte{0xFF});
    matrix.data = data.data();
    CHECK_FALSE(pack_tiles(view, matrix, 0, matrix.tiles(), {}).has_value());
    CHECK(lie_at(matrix, stored, [](int row, int k) { return k * 32 + row % kTileRows * 2; }));
}

TEST_CASE(
    "a float16 that is not finite is found, in the file and where numbers are rounded to it") {
    for (const std::uint16_t wrong : {std::uint16_t{0x7C00}, std::uint16_t{0xFE01}}) {
        std::vector<std::uint16_t> stored(3 * 64, 0x3C00);
        stored[64 + 41] = wrong;
        const auto bytes = std::as_bytes(std::span(stored));
        const TensorView view{"w", StoredType::F16, 3, 64, bytes.data(), bytes.size()};
        PackedMatrix matrix{PackedType::F16, 3, 64, nullptr};
        std::vector<std::byte> data(matrix.bytes());
        matrix.data = data.data();
        CHECK(pack_tiles(view, matrix, 0, 1, {}).value_or(-1) == 1);
    }
    std::vector<float> values(64, 65504.0f);
    std::vector<float> scratch(64);
    PackedMatrix matrix{PackedType::F16, 1, 64, nullptr};
    std::vector<std::byte> data(matrix.bytes());
    matrix.data = data.data();
    CHECK_FALSE(pack_tiles(OwnedTensor(values, 1, 64).view, matrix, 0, 1, scratch).has_value());
    values[3] = 65520.0f;  // rounds to infinity
    CHECK(pack_tiles(OwnedTensor(values, 1, 64).view, matrix, 0, 1, scratch).value_or(-1) == 0);
}

TEST_CASE("quantising stays within half a step of every value") {
    std::mt19937 rng{3};
    const int cols = 80;  // the last group is half empty
    const OwnedTensor tensor{random_floats(rng, 33 * cols), 33, cols};
    const std::vector<float> int8 = OwnedMatrix(tensor.view, PackedType::Int8).values();
    const std::vector<float> q4 = OwnedMatrix(tensor.view, PackedType::Q4).values();
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        CHECK(std::fabs(int8[i] - tensor.values[i]) <
              0.02f);  // largest of 32 normals / 127 / 2, and the scale's rounding
        CHECK(std::fabs(q4[i] - tensor.values[i]) < 0.3f);  // their range / 15 / 2
    }
}

TEST_CASE("a group of zeros and a group with an infinity pack to finite numbers") {
    std::vector<float> values(64, 0.0f);
    values[40] = INFINITY;
    values[41] = NAN;
    values[42] = 3.0f;
    const OwnedTensor tensor{values, 1, 64};
    for (const PackedType type : {PackedType::Int8, PackedType::Q4}) {
        for (const float value : OwnedMatrix(tensor.view, type).values())
            CHECK(std::isfinite(value));
    }
}

}  // namespace
}  // namespace paceline
