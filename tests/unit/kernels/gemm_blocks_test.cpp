// Block types: the file's numbers bit for bit, and their products.
#include <cmath>
#include <tuple>

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
    // The numbers of a block whose bits are all ones, or zeros, with 1 as d, m and dmin.
    float ones;
    float zeros;
};
constexpr Kind kKinds[] = {
    {StoredType::Q5_0, PackedType::Q5_0, 15, -16},
    {StoredType::Q5_1, PackedType::Q5_1, 31 + 1, 1},
    {StoredType::Q2_K, PackedType::Q2K, 15 * 3 - 15, 0},
    {StoredType::Q3_K, PackedType::Q3K, 31 * 3, -32 * -4},
    {StoredType::Q4_K, PackedType::Q4K, 63 * 15 - 63, 0},
    {StoredType::Q5_K, PackedType::Q5K, 63 * 31 - 63, 0},
    {StoredType::Q6_K, PackedType::Q6K, -1 * 31, 0},
    {StoredType::IQ4_NL, PackedType::IQ4NL, 113, -127},
    {StoredType::IQ4_XS, PackedType::IQ4XS, 31 * 113, -32 * -127},
    {StoredType::MXFP4, PackedType::MXFP4, -12, 0},
};

/// A row length that is no whole number of spans or units, and for blocks of 32 of pairs of groups.
int odd_columns(const Kind& kind) {
    return traits(kind.stored).block_elements == 32 ? 608 : 768;
}

/// Blocks of any bits, with scales of about `size` or, where it is 0, of every finite float16.
std::vector<std::byte> blocks(std::mt19937& rng, StoredType type, int rows, int cols, float size) {
    const TypeTraits shape = traits(type);
    const test::detail::HalfPlaces places = test::detail::half_places(type);
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows * cols) / shape.block_elements *
                                 shape.block_bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng());
    for (std::size_t block = 0; block < bytes.size(); block += shape.block_bytes) {
        if (type == StoredType::MXFP4)  // above 252 a float32 cannot hold all of its numbers
            bytes[block] = static_cast<std::byte>(
                size > 0.0f ? 128 + std::ilogb(size) + static_cast<int>(rng() % 3) : rng() % 253);
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

TEST_CASE("a packed block keeps the file's numbers bit for bit, whatever its scales") {
    std::mt19937 rng{41};
    for (const Kind& kind : kKinds) {
        CAPTURE(name(kind.packed));
        const int rows = 37;
        const int cols = odd_columns(kind);
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

TEST_CASE("packed blocks take at most 1.05 times the file's memory, one of Q3_K at most 1.06") {
    for (const Kind& kind : kKinds) {
        CAPTURE(name(kind.packed));
        const TypeTraits shape = traits(kind.stored);
        // 576 is the width of a model of 135M.
        for (const int cols : {shape.block_elements == 32 ? 576 : 512, 1024, 4096, 256}) {
            const PackedMatrix matrix{kind.packed, 64, cols, nullptr};
            const double file = 64.0 * cols / shape.block_elements * shape.block_bytes;
            const bool odd =
                kind.packed == PackedType::Q3K && cols == 256;  // see packed_blocks.hpp
            CHECK(static_cast<double>(matrix.bytes()) <= (odd ? 1.06 : 1.05) * file);
        }
    }
}

TEST_CASE("products with blocks agree with the reference implementation") {
    std::mt19937 rng{43};
    for (const Kind& kind : kKinds) {
        for (const Isa isa : testing::runnable_isas()) {
            CAPTURE(name(kind.packed));
            CAPTURE(name(isa));
            const int outputs = 50;
            const int inputs = odd_columns(kind);
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

TEST_CASE("a row's product with blocks has the same bits alone, among others and in any slicing") {
    std::mt19937 rng{44};
    for (const Kind& kind : kKinds) {
        for (const Isa isa : testing::runnable_isas()) {
            CAPTURE(name(kind.packed));
            CAPTURE(name(isa));
            const int outputs = 75;
            const int inputs = odd_columns(kind);
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

TEST_CASE(
    "a row's product with blocks has the same bits among more rows and inputs than any kernel "
    "takes at once") {
    constexpr int kRows = 140;     // AMX: eight panels of 16 rows at once
    constexpr int kInputs = 1280;  // and 32 groups of 32 inputs
    constexpr std::size_t kOutputs = 20;
    std::mt19937 rng{45};
    const std::vector<float> x = random_floats(rng, std::size_t{kRows} * kInputs);
    for (const Kind& kind : kKinds) {
        const std::vector<std::byte> bytes = blocks(rng, kind.stored, kOutputs, kInputs, 1e-4f);
        const OwnedMatrix matrix{view(kind.stored, kOutputs, kInputs, bytes), kind.packed};
        for (const Isa isa : testing::runnable_isas()) {
            CAPTURE(name(kind.packed));
            CAPTURE(name(isa));
            const std::vector<float> all = product(isa, matrix.matrix, x, kRows, 2);
            for (std::size_t r = 0; r < kRows; r += 9) {
                const auto row = std::span(x).subspan(r * kInputs, kInputs);
                const std::vector<float> alone = product(isa, matrix.matrix, row, 1, 1);
                CHECK(testing::equal_bits(alone, std::span(all).subspan(r * kOutputs, kOutputs)));
            }
        }
    }
}

TEST_CASE("the largest codes, scales and activations do not saturate on any instruction set") {
    for (const Kind& kind : kKinds) {
        CAPTURE(name(kind.packed));
        const TypeTraits shape = traits(kind.stored);
        const test::detail::HalfPlaces places = test::detail::half_places(kind.stored);
        for (const bool ones : {true, false}) {
            std::vector<std::byte> bytes(256 / shape.block_elements * shape.block_bytes,
                                         ones ? std::byte{0xFF} : std::byte{0});
            for (std::size_t block = 0; block < bytes.size(); block += shape.block_bytes) {
                if (kind.stored == StoredType::MXFP4) bytes[block] = std::byte{128};
                for (const int at : {places.scale, places.minimum}) {
                    const std::uint16_t one = float_to_half(1.0f);
                    if (at >= 0) std::memcpy(bytes.data() + block + at, &one, sizeof one);
                }
            }
            const OwnedMatrix matrix{view(kind.stored, 1, 256, bytes), kind.packed};
            for (const float value : {127.0f, -127.0f}) {
                const std::vector<float> x(256, value);
                for (const Isa isa : testing::runnable_isas())
                    CHECK(product(isa, matrix.matrix, x, 1, 1)[0] ==
                          256.0f * (ones ? kind.ones : kind.zeros) * value);
            }
        }
    }
}

TEST_CASE("MXFP4 scales of all sizes multiply as the reference's, down to the subnormal ones") {
    for (int e = 0; e < 248; ++e) {
        std::vector<std::byte> bytes(17, std::byte{0x22});  // every number 2^(e - 127)
        bytes[0] = static_cast<std::byte>(e);
        const OwnedMatrix matrix{view(StoredType::MXFP4, 1, 32, bytes), PackedType::MXFP4};
        std::vector<float> x(32, 0.0f);
        x[0] = 127.0f;
        for (const Isa isa : testing::runnable_isas()) {
            CAPTURE(name(isa));
            CAPTURE(e);
            CHECK(product(isa, matrix.matrix, x, 1, 1)[0] == std::ldexp(127.0f, e - 127));
        }
    }
}

TEST_CASE("an MXFP4 block is refused where a float32 cannot hold its numbers") {
    for (const auto& [e, quant, wrong] :
         {std::tuple{252, 0x77, false}, {253, 0x55, false}, {253, 0x56, true}, {255, 0x00, true}}) {
        std::vector<std::byte> bytes(17, static_cast<std::byte>(quant));
        bytes[0] = static_cast<std::byte>(e);
        PackedMatrix matrix{PackedType::MXFP4, 1, 32, nullptr};
        std::vector<std::byte> data(matrix.bytes());
        matrix.data = data.data();
        CAPTURE(e);
        CHECK(pack_tiles(view(StoredType::MXFP4, 1, 32, bytes), matrix, 0, 1, {}).has_value() ==
              wrong);
    }
}

}  // namespace paceline
