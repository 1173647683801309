// Rows as a file stores them, beside the numbers that they were made from.
#include "model/weights/encode_row.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "model/weights/gguf/gguf_codes.hpp"
#include "model/weights/quantise.hpp"

namespace paceline {
namespace {

std::vector<float> numbers(std::size_t count) {
    std::vector<float> row(count);
    std::uint32_t state = 7;
    for (float& value : row) {
        state = state * 1664525U + 1013904223U;
        value = (static_cast<float>(state >> 8U) / 16777216.0F - 0.4F) * 0.1F;
    }
    return row;
}

struct Encoded {
    std::vector<std::byte> bytes;
    TensorView view;
    bool finite = false;
};

Encoded encoded(StoredType type, const std::vector<float>& row) {
    const TypeTraits shape = traits(type);
    Encoded out;
    out.bytes.resize(row.size() / shape.block_elements * shape.block_bytes);
    out.finite = encode_row(type, row, out.bytes);
    out.view = {.name = "t", .type = type, .rows = 1, .cols = std::ssize(row)};
    out.view.data = out.bytes.data();
    out.view.bytes = out.bytes.size();
    return out;
}

}  // namespace

TEST_CASE("blocks hold the integers and scales that a backend makes of the same numbers") {
    const std::vector<float> row = numbers(96);
    for (const StoredType type : {StoredType::Q8_0, StoredType::Q4_1}) {
        const Encoded made = encoded(type, row);
        CHECK(made.finite);
        for (int group = 0; group < 3; ++group) {
            const float* x = row.data() + static_cast<std::ptrdiff_t>(group) * kQuantGroup;
            const bool int8 = type == StoredType::Q8_0;
            const QuantisedGroup wanted = int8 ? quantise_int8(x) : quantise_q4(x);
            const std::byte* block =
                made.view.data + group * static_cast<std::ptrdiff_t>(traits(type).block_bytes);
            StoredCodes stored;
            stored_codes(type, std::span{&block, 1}, 0, std::span{&stored, 1});
            for (std::size_t i = 0; i < stored.codes.size(); ++i)
                CHECK(stored.codes[i] == wanted.q[i] + (int8 ? 128 : 0));
            CHECK(stored.d == wanted.scale);
            CHECK(stored.minimum == wanted.minimum);
        }
    }
}

TEST_CASE("what is read of a row is within half a step of what was written") {
    const std::vector<float> row = numbers(64);
    for (const auto& [type, steps] :
         {std::pair{StoredType::Q8_0, 127.0F}, std::pair{StoredType::Q4_1, 15.0F},
          std::pair{StoredType::Q4_0, 8.0F}, std::pair{StoredType::BF16, 256.0F},
          std::pair{StoredType::F32, 1e9F}}) {
        CAPTURE(traits(type).name);
        std::vector<float> read(row.size());
        dequantize_row(encoded(type, row).view, 0, read);
        for (std::size_t i = 0; i < row.size(); ++i) {
            // Q4_0 has no step for the other end: up to a whole one is cut off there.
            const float bound = (type == StoredType::Q4_0 ? 1.01F : 0.51F) * 0.1F / steps;
            CHECK(std::fabs(read[i] - row[i]) <= bound);
        }
    }
}

TEST_CASE("Q4_0 keeps the number of the largest magnitude, whatever its sign, and zeros") {
    for (const float sign : {1.0F, -1.0F}) {
        std::vector<float> row(32, 0.25F * sign);
        row[5] = -2.0F * sign;
        row[6] = 0.0F;
        std::vector<float> read(row.size());
        dequantize_row(encoded(StoredType::Q4_0, row).view, 0, read);
        CHECK(read == row);
    }
    const std::vector<float> zeros(32, 0.0F);
    std::vector<float> read(32, 1.0F);
    dequantize_row(encoded(StoredType::Q4_0, zeros).view, 0, read);
    CHECK(read == zeros);
}

TEST_CASE("a number that is not finite, or too large for a scale, is said") {
    for (const StoredType type : {StoredType::F32, StoredType::BF16, StoredType::Q8_0,
                                  StoredType::Q4_0, StoredType::Q4_1}) {
        CAPTURE(traits(type).name);
        std::vector<float> row = numbers(64);
        CHECK(encoded(type, row).finite);
        row[40] = std::numeric_limits<float>::quiet_NaN();
        CHECK_FALSE(encoded(type, row).finite);
        row[40] = 1e30F;
        const bool wide = type == StoredType::F32 || type == StoredType::BF16;
        CHECK(encoded(type, row).finite == wide);
    }
    CHECK_FALSE(can_encode(StoredType::Q4_K));
}

}  // namespace paceline
