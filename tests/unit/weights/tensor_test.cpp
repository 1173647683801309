// Conversions of single numbers, and blocks against values worked out by hand.
#include "model/weights/tensor.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/weights/gguf_builder.hpp"

namespace paceline {
namespace {

using test::append;
using test::Bytes;

TensorView view(StoredType type, std::int64_t cols, const Bytes& bytes) {
    return {.name = "t",
            .type = type,
            .rows = 1,
            .cols = cols,
            .data = bytes.data(),
            .bytes = bytes.size()};
}

std::vector<float> dequantized(const TensorView& tensor, std::int64_t row = 0) {
    std::vector<float> out(static_cast<std::size_t>(tensor.cols));
    dequantize_row(tensor, row, out);
    return out;
}

}  // namespace

TEST_CASE("every half survives the way to float and back") {
    for (std::uint32_t bits = 0; bits < 65'536; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = half_to_float(half);
        if (std::isnan(value)) {
            CHECK(std::isnan(half_to_float(float_to_half(value))));
        } else {
            REQUIRE(float_to_half(value) == half);
        }
    }
}

TEST_CASE("every bfloat survives the way to float and back") {
    for (std::uint32_t bits = 0; bits < 65'536; ++bits) {
        const auto bfloat = static_cast<std::uint16_t>(bits);
        const float value = bfloat_to_float(bfloat);
        if (std::isnan(value)) {
            CHECK(std::isnan(bfloat_to_float(float_to_bfloat(value))));
        } else {
            REQUIRE(float_to_bfloat(value) == bfloat);
        }
    }
}

TEST_CASE("halves have the values of IEEE 754") {
    CHECK(half_to_float(0x3C00) == 1.0F);
    CHECK(half_to_float(0xC000) == -2.0F);
    CHECK(half_to_float(0x7BFF) == 65504.0F);
    CHECK(half_to_float(0x0400) == 0x1p-14F);
    CHECK(half_to_float(0x0001) == 0x1p-24F);
    CHECK(half_to_float(0x83FF) == -1023 * 0x1p-24F);
    CHECK(half_to_float(0x7C00) == std::numeric_limits<float>::infinity());
    CHECK(std::isnan(half_to_float(0x7C01)));
    CHECK(std::signbit(half_to_float(0x8000)));
}

TEST_CASE("a float becomes the nearest half, and the even one of two equally near") {
    test::detail::Random random(7);
    for (int i = 0; i < 300'000; ++i) {
        // Exponents from far below the smallest subnormal to just below the largest half.
        const float value =
            std::ldexp(random.between(-1.0F, 1.0F), static_cast<int>(random.bits() % 46) - 30);
        if (std::fabs(value) >= 65504.0F) continue;
        const std::uint16_t half = float_to_half(value);
        const auto magnitude = static_cast<std::uint16_t>(half & 0x7FFFU);
        const double wanted = std::fabs(static_cast<double>(value));
        const double error = std::fabs(static_cast<double>(half_to_float(magnitude)) - wanted);
        const double above = std::fabs(
            static_cast<double>(half_to_float(static_cast<std::uint16_t>(magnitude + 1))) - wanted);
        REQUIRE(error <= above);
        if (error == above) REQUIRE(magnitude % 2 == 0);
        if (magnitude == 0) continue;
        const double below = std::fabs(
            static_cast<double>(half_to_float(static_cast<std::uint16_t>(magnitude - 1))) - wanted);
        REQUIRE(error <= below);
        if (error == below) REQUIRE(magnitude % 2 == 0);
    }
    CHECK(float_to_half(65519.9F) == 0x7BFF);
    CHECK(float_to_half(65520.0F) == 0x7C00);
    CHECK(float_to_half(-1e30F) == 0xFC00);
    CHECK(float_to_half(0x1p-25F) == 0x0000);         // a tie: to the even zero
    CHECK(float_to_half(0x1.8p-24F) == 0x0002);       // a tie: to the even 2
    CHECK(float_to_half(1.0F + 0x1p-11F) == 0x3C00);  // a tie at one
    CHECK(float_to_half(1.0F + 0x1.8p-10F) == 0x3C02);
}

TEST_CASE("a float becomes the nearest bfloat, ties to even, and NaN stays NaN") {
    CHECK(float_to_bfloat(1.0F) == 0x3F80);
    CHECK(float_to_bfloat(1.0F + 0x1p-8F) == 0x3F80);
    CHECK(float_to_bfloat(1.0F + 0x1.8p-7F) == 0x3F82);
    CHECK(float_to_bfloat(std::bit_cast<float>(0x7F7FFFFFU)) == 0x7F80);  // rounds to infinity
    CHECK(std::isnan(bfloat_to_float(float_to_bfloat(std::bit_cast<float>(0x7F800001U)))));
}

TEST_CASE("a Q8_0 block is its scale times 32 signed bytes") {
    Bytes bytes;
    append(bytes, float_to_half(0.25F));
    for (int i = 0; i < 32; ++i) append(bytes, static_cast<std::int8_t>(i == 0 ? -128 : i * 4));
    const std::vector<float> out = dequantized(view(StoredType::Q8_0, 32, bytes));
    CHECK(out[0] == -32.0F);
    for (std::size_t i = 1; i < 32; ++i) CHECK(out[i] == static_cast<float>(i));
}

TEST_CASE("a Q4_0 block holds elements j and j + 16 in the low and high half of byte j") {
    Bytes bytes;
    append(bytes, float_to_half(0.5F));
    for (int j = 0; j < 16; ++j) append(bytes, static_cast<std::uint8_t>(j | ((15 - j) << 4)));
    const std::vector<float> out = dequantized(view(StoredType::Q4_0, 32, bytes));
    for (int j = 0; j < 16; ++j) {
        CHECK(out[static_cast<std::size_t>(j)] == 0.5F * static_cast<float>(j - 8));
        CHECK(out[static_cast<std::size_t>(j + 16)] == 0.5F * static_cast<float>(7 - j));
    }
}

TEST_CASE("a Q4_1 block adds its minimum, and the next block has its own scale") {
    Bytes bytes;
    for (const float scale : {2.0F, -1.0F}) {
        append(bytes, float_to_half(scale));
        append(bytes, float_to_half(0.125F));
        for (int j = 0; j < 16; ++j) append(bytes, static_cast<std::uint8_t>(j | (3 << 4)));
    }
    const std::vector<float> out = dequantized(view(StoredType::Q4_1, 64, bytes));
    for (std::size_t j = 0; j < 16; ++j) {
        CHECK(out[j] == 2.0F * static_cast<float>(j) + 0.125F);
        CHECK(out[j + 16] == 6.125F);
        CHECK(out[j + 32] == 0.125F - static_cast<float>(j));
        CHECK(out[j + 48] == -2.875F);
    }
}

TEST_CASE("plain types are read at any address, and rows follow each other") {
    Bytes bytes(1);  // one byte off every alignment
    for (const float value : {1.5F, -2.25F, 3.0F, 4.0F}) append(bytes, value);
    const TensorView f32{.name = "t",
                         .type = StoredType::F32,
                         .rows = 2,
                         .cols = 2,
                         .data = bytes.data() + 1,
                         .bytes = 16};
    CHECK(dequantized(f32, 0) == std::vector<float>{1.5F, -2.25F});
    CHECK(dequantized(f32, 1) == std::vector<float>{3.0F, 4.0F});

    Bytes halves;
    append(halves, float_to_half(-0.75F));
    append(halves, float_to_half(2048.0F));
    CHECK(dequantized(view(StoredType::F16, 2, halves)) == std::vector<float>{-0.75F, 2048.0F});
    Bytes bfloats;
    append(bfloats, float_to_bfloat(-0.75F));
    append(bfloats, float_to_bfloat(2048.0F));
    CHECK(dequantized(view(StoredType::BF16, 2, bfloats)) == std::vector<float>{-0.75F, 2048.0F});
}

}  // namespace paceline
