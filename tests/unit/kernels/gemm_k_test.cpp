// Q4_K and Q6_K matrices: the file's numbers bit for bit, and their products.
#include <cmath>

#include <doctest/doctest.h>

#include "model/kernels/cpu/kernel_table.hpp"
#include "model/reference/matmul.hpp"
#include "tests/unit/kernels/kernel_fixture.hpp"
#include "tests/unit/weights/gguf_builder.hpp"

namespace paceline {
namespace {

using testing::OwnedMatrix;
using testing::random_floats;

struct Kind {
    StoredType stored;
    PackedType packed;
};
constexpr Kind kKinds[] = {{StoredType::Q4_K, PackedType::Q4K},
                           {StoredType::Q6_K, PackedType::Q6K}};

/// Blocks of any bits, with scales of about `size` or, where it is 0, of every finite float16.
std::vector<std::byte> blocks(std::mt19937& rng, StoredType type, int rows, int cols, float size) {
    const TypeTraits shape = traits(type);
    const test::detail::HalfPlaces places = test::detail::half_places(type);
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows * cols) / shape.block_elements *
                                 shape.block_bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng());
    for (std::size_t block = 0; block < bytes.size(); block += shape.block_bytes) {
        for (const int at : {places.scale, places.minimum}) {
            if (at < 0) continue;
            const float drawn = size * (0.5f + static_cast<float>(rng() % 100) / 100.0f);
            const auto any = static_cast<std::uint16_t>((rng() % 0x7C00U) | (rng() & 0x8000U));
            const std::uint16_t half = size > 0.0f ? float_to_half(drawn) : any;
            std::memcpy(bytes.data() + block + at, &half, sizeof half);
        }
    }
    return bytes;
}

TensorView view(StoredType type, int rows, int cols, const std::vector<std::byte>& bytes) {
    return {"w", type, rows, cols, bytes.data(), bytes.size()};
}

std::vector<float> product(
    Isa isa, const PackedMatrix& w, std::span<const float> x, int rows, int slices) {
    Activations memory{rows, w.cols};
    const PackedRows packed = memory.shaped(activation_for(w.type), rows, w.cols);
    for (int r = 0; r < rows; ++r)
        kernels(isa).pack_row(x.data() + r * w.cols, {0, w.cols}, packed, r);
    std::vector<float> y(static_cast<std::size_t>(rows * w.rows), -1.0f);
    std::vector<float*> pointers;
    for (int r = 0; r < rows; ++r) pointers.push_back(y.data() + r * w.rows);
    const GemmArgs args{&w, &packed, pointers.data(), 0, false};
    for (int s = 0; s < slices; ++s)
        kernels(isa).gemm(args, w.tiles() * s / slices, w.tiles() * (s + 1) / slices);
    return y;
}

}  // namespace

TEST_CASE("a packed K block keeps the file's numbers bit for bit, whatever its scales") {
    std::mt19937 rng{41};
    for (const Kind& kind : kKinds) {
        CAPTURE(name(kind.packed));
        const int rows = 37;
        const int cols = 768;
        const std::vector<std::byte> bytes = blocks(rng, kind.stored, rows, cols, 0.0f);
        const TensorView tensor = view(kind.stored, rows, cols, bytes);
        const OwnedMatrix matrix{tensor, kind.packed};
        std::vector<float> want(static_cast<std::size_t>(cols));
        std::vector<float> got(want.size());
        for (int r = 0; r < rows; ++r) {
            dequantize_row(tensor, r, want);
            unpack_row(matrix.matrix, r, got);
            CHECK(testing::equal_bits(got, want));
        }
    }
}

TEST_CASE("packed K blocks take at most 1.05 times the file's memory") {
    std::mt19937 rng{42};
    for (const Kind& kind : kKinds) {
        const std::vector<std::byte> bytes = blocks(rng, kind.stored, 64, 1024, 0.0f);
        const OwnedMatrix matrix{view(kind.stored, 64, 1024, bytes), kind.packed};
        CHECK(static_cast<double>(matrix.matrix.bytes()) <=
              1.05 * static_cast<double>(bytes.size()));
    }
}

TEST_CASE("products with K blocks agree with the plain twin") {
    std::mt19937 rng{43};
    for (const Kind& kind : kKinds) {
        for (const Isa isa : testing::runnable_isas()) {
            CAPTURE(name(kind.packed));
            CAPTURE(name(isa));
            const int outputs = 50;
            const int inputs = 512;
            const std::vector<std::byte> bytes = blocks(rng, kind.stored, outputs, inputs, 1e-4f);
            const OwnedMatrix matrix{view(kind.stored, outputs, inputs, bytes), kind.packed};
            const std::vector<float> weights = matrix.values();
            // Whole numbers up to 127, one of them 127, quantise exactly: so does the product.
            std::vector<float> x(static_cast<std::size_t>(inputs));
            for (std::size_t k = 0; k < x.size(); ++k)
                x[k] = static_cast<float>(k % 32 == 0 ? 127 : static_cast<int>(rng() % 255) - 127);
            std::vector<float> want(static_cast<std::size_t>(outputs));
            reference::matmul(weights, x, {}, want);
            const std::vector<float> y = product(isa, matrix.matrix, x, 1, 1);
            for (int o = 0; o < outputs; ++o) {
                const auto at = static_cast<std::size_t>(o);
                float norm = 0;
                for (std::size_t k = 0; k < x.size(); ++k)
                    norm += std::fabs(weights[at * x.size() + k] * x[k]);
                CHECK(std::fabs(y[at] - want[at]) <= 1e-6f * norm);
            }
        }
    }
}

TEST_CASE(
    "a row's product with K blocks has the same bits alone, among others and in any slicing") {
    std::mt19937 rng{44};
    for (const Kind& kind : kKinds) {
        for (const Isa isa : testing::runnable_isas()) {
            CAPTURE(name(kind.packed));
            CAPTURE(name(isa));
            const int outputs = 75;
            const int inputs = 512;
            const auto o = static_cast<std::size_t>(outputs);
            const auto k = static_cast<std::size_t>(inputs);
            const std::vector<std::byte> bytes = blocks(rng, kind.stored, outputs, inputs, 1e-4f);
            const OwnedMatrix matrix{view(kind.stored, outputs, inputs, bytes), kind.packed};
            const std::vector<float> x = random_floats(rng, 64 * k);
            const std::vector<float> all = product(isa, matrix.matrix, x, 64, 1);
            for (int rows = 1; rows < 64; rows += rows < 18 ? 1 : 9) {
                const auto count = static_cast<std::size_t>(rows);
                const std::vector<float> y =
                    product(isa, matrix.matrix, std::span(x).first(count * k), rows, 1 + rows % 4);
                CHECK(testing::equal_bits(y, std::span(all).first(count * o)));
                const std::vector<float> alone =
                    product(isa, matrix.matrix, std::span(x).subspan(count * k, k), 1, 1);
                CHECK(testing::equal_bits(alone, std::span(all).subspan(count * o, o)));
            }
        }
    }
}

TEST_CASE("the largest K quants and activations do not saturate on any instruction set") {
    for (const Kind& kind : kKinds) {
        std::vector<std::byte> block(traits(kind.stored).block_bytes, std::byte{0xFF});
        const test::detail::HalfPlaces places = test::detail::half_places(kind.stored);
        for (const int at : {places.scale, places.minimum}) {
            const std::uint16_t one = float_to_half(1.0f);
            if (at >= 0) std::memcpy(block.data() + at, &one, sizeof one);
        }
        // Q4_K: 63 * 15 - 63; Q6_K: -1 * (63 - 32).
        const float weight = kind.stored == StoredType::Q4_K ? 882.0f : -31.0f;
        const OwnedMatrix matrix{view(kind.stored, 1, 256, block), kind.packed};
        for (const float value : {127.0f, -127.0f}) {
            const std::vector<float> x(256, value);
            for (const Isa isa : testing::runnable_isas())
                CHECK(product(isa, matrix.matrix, x, 1, 1)[0] == 256.0f * weight * value);
        }
    }
}

}  // namespace paceline
