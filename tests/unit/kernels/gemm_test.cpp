#include <cmath>

#include <doctest/doctest.h>

#include "model/kernels/cpu/kernel_table.hpp"
#include "model/reference/matmul.hpp"
#include "tests/unit/kernels/kernel_fixture.hpp"

namespace paceline {
namespace {

using testing::OwnedMatrix;
using testing::OwnedTensor;
using testing::random_floats;

constexpr PackedType kTypes[] = {PackedType::F32, PackedType::BF16, PackedType::F16,
                                 PackedType::Int8, PackedType::Q4};

/// Products of `rows` rows of x, [rows, w.rows], computed in `slices` slices of tiles.
std::vector<float> product(const KernelTable& kernels,
                           const PackedMatrix& w,
                           std::span<const float> x,
                           int rows,
                           int slices = 1) {
    Activations memory{rows, w.cols};
    const PackedRows packed = memory.shaped(activation_for(w.type), rows, w.cols);
    for (int r = 0; r < rows; ++r) kernels.pack_row(x.data() + r * w.cols, {0, w.cols}, packed, r);
    std::vector<float> y(static_cast<std::size_t>(rows * w.rows), -1.0f);
    std::vector<float*> pointers;
    for (int r = 0; r < rows; ++r) pointers.push_back(y.data() + r * w.rows);
    const GemmArgs args{&w, &packed, pointers.data(), 0, false};
    for (int s = 0; s < slices; ++s)
        kernels.gemm(args, w.tiles() * s / slices, w.tiles() * (s + 1) / slices);
    return y;
}

/// How far the rounding of a row's activations may carry an output, relative to |w| |x|.
float tolerance(PackedType type) {
    switch (type) {
        case PackedType::F32:
        case PackedType::F16:
            return 1e-6f;
        case PackedType::BF16:
            return 4e-3f;  // 2^-9 on every activation
        default:
            return 8e-3f;  // half a step of 127 on every activation
    }
}

TEST_CASE("every matrix kernel agrees with the reference implementation on its own weights") {
    std::mt19937 rng{11};
    for (const Isa isa : testing::runnable_isas()) {
        for (const PackedType type : kTypes) {
            for (const auto& [outputs, inputs] :
                 {std::pair{16, 32}, {48, 96}, {50, 70}, {7, 33}, {129, 576}}) {
                CAPTURE(name(isa));
                CAPTURE(name(type));
                CAPTURE(outputs);
                CAPTURE(inputs);
                const OwnedTensor source{
                    random_floats(rng, static_cast<std::size_t>(outputs * inputs)), outputs,
                    inputs};
                const OwnedMatrix matrix{source.view, type};
                const std::vector<float> weights = matrix.values();
                const int rows = 11;
                const std::vector<float> x =
                    random_floats(rng, static_cast<std::size_t>(rows * inputs));
                const std::vector<float> y = product(kernels(isa), matrix.matrix, x, rows);
                std::vector<float> want(static_cast<std::size_t>(outputs));
                float worst = 0;
                for (int r = 0; r < rows; ++r) {
                    const auto row = std::span(x).subspan(static_cast<std::size_t>(r * inputs),
                                                          static_cast<std::size_t>(inputs));
                    reference::matmul(weights, row, {}, want);
                    for (int o = 0; o < outputs; ++o) {
                        float norm = 0;
                        for (int k = 0; k < inputs; ++k)
                            norm += std::fabs(weights[static_cast<std::size_t>(o * inputs + k)] *
                                              row[static_cast<std::size_t>(k)]);
                        const float error = std::fabs(y[static_cast<std::size_t>(r * outputs + o)] -
                                                      want[static_cast<std::size_t>(o)]);
                        worst = std::max(worst, error / norm);
                    }
                }
                CHECK(worst < tolerance(type));
            }
        }
    }
}

/// 64 rows against one matrix: each row alone and every number of rows in every slicing.
void check_row_invariance(
    std::mt19937& rng, const KernelTable& table, PackedType type, int outputs, int inputs) {
    const auto o = static_cast<std::size_t>(outputs);
    const auto k = static_cast<std::size_t>(inputs);
    const OwnedTensor source{random_floats(rng, o * k), outputs, inputs};
    const OwnedMatrix matrix{source.view, type};
    const std::vector<float> x = random_floats(rng, 64 * k);
    const std::vector<float> all = product(table, matrix.matrix, x, 64);
    for (std::size_t r = 0; r < 64; ++r) {
        const std::vector<float> alone =
            product(table, matrix.matrix, std::span(x).subspan(r * k, k), 1);
        CHECK(testing::equal_bits(alone, std::span(all).subspan(r * o, o)));
    }
    for (int rows = 1; rows < 64; ++rows) {
        const auto count = static_cast<std::size_t>(rows);
        const std::vector<float> y =
            product(table, matrix.matrix, std::span(x).first(count * k), rows, 1 + rows % 4);
        CHECK(testing::equal_bits(y, std::span(all).first(count * o)));
    }
}

TEST_CASE(
    "a row's product has the same bits alone, among 64 rows, and in any slicing of the tiles") {
    const unsigned seed = std::random_device{}();
    CAPTURE(seed);  // shapes are drawn anew each time; a failure prints what to put here
    std::mt19937 rng{seed};
    for (const Isa isa : testing::runnable_isas()) {
        for (const PackedType type : kTypes) {
            for (int shape = 0; shape < 4; ++shape) {
                const int outputs = 1 + static_cast<int>(rng() % 130);
                const int inputs = 1 + static_cast<int>(rng() % 200);
                CAPTURE(name(isa));
                CAPTURE(name(type));
                CAPTURE(outputs);
                CAPTURE(inputs);
                check_row_invariance(rng, kernels(isa), type, outputs, inputs);
            }
        }
    }
}

TEST_CASE(
    "a row's product has the same bits among more rows and inputs than any kernel takes at once") {
    constexpr int kRows = 150;     // AMX: eight panels of 16 rows at once
    constexpr int kInputs = 1190;  // and 32 groups of 32 inputs
    constexpr std::size_t kOutputs = 21;
    std::mt19937 rng{12};
    const std::vector<float> x = random_floats(rng, std::size_t{kRows} * kInputs);
    const OwnedTensor source{random_floats(rng, kOutputs * kInputs), kOutputs, kInputs};
    for (const Isa isa : testing::runnable_isas()) {
        for (const PackedType type : kTypes) {
            CAPTURE(name(isa));
            CAPTURE(name(type));
            const OwnedMatrix matrix{source.view, type};
            const std::vector<float> all = product(kernels(isa), matrix.matrix, x, kRows, 2);
            for (std::size_t r = 0; r < kRows; r += 7) {
                const auto row = std::span(x).subspan(r * kInputs, kInputs);
                const std::vector<float> alone = product(kernels(isa), matrix.matrix, row, 1);
                CHECK(testing::equal_bits(alone, std::span(all).subspan(r * kOutputs, kOutputs)));
            }
        }
    }
}

TEST_CASE("products with quantised weights have the same bits with AMX as with AVX-512") {
    if (!supports(Isa::Amx)) {
        MESSAGE("skipped: this machine has no AMX");
        return;
    }
    std::mt19937 rng{14};
    constexpr int kRows = 41;
    constexpr int kInputs = 300;
    const std::vector<float> x = random_floats(rng, std::size_t{kRows} * kInputs);
    const OwnedTensor source{random_floats(rng, std::size_t{33} * kInputs), 33, kInputs};
    for (const PackedType type : {PackedType::Int8, PackedType::Q4}) {
        const OwnedMatrix matrix{source.view, type};
        CHECK(testing::equal_bits(product(kernels(Isa::Amx), matrix.matrix, x, kRows),
                                  product(kernels(Isa::Avx512), matrix.matrix, x, kRows)));
    }
}

TEST_CASE("products with float32 and float16 weights have the same bits on every fused path") {
    std::mt19937 rng{15};
    constexpr int kRows = 41;
    constexpr int kInputs = 300;
    const std::vector<float> x = random_floats(rng, std::size_t{kRows} * kInputs);
    const OwnedTensor source{random_floats(rng, std::size_t{33} * kInputs), 33, kInputs};
    for (const PackedType type : {PackedType::F32, PackedType::F16}) {
        const OwnedMatrix matrix{source.view, type};
        std::vector<float> first;
        for (const Isa isa : testing::runnable_isas()) {
            if (isa == Isa::Portable) continue;  // rounds a product before it adds it
            CAPTURE(name(isa));
            const std::vector<float> y = product(kernels(isa), matrix.matrix, x, kRows);
            if (first.empty()) first = y;
            CHECK(testing::equal_bits(y, first));
        }
    }
}

TEST_CASE(
    "every finite float16 is multiplied exactly on any instruction set, also subnormal ones") {
    constexpr int kInputs = 64;
    const std::vector<std::uint16_t> stored = testing::finite_halves();
    const int outputs = static_cast<int>(stored.size()) / kInputs;
    const auto bytes = std::as_bytes(std::span(stored));
    const OwnedMatrix matrix{
        TensorView{"w", StoredType::F16, outputs, kInputs, bytes.data(), bytes.size()},
        PackedType::F16};
    std::vector<float> x(std::size_t{kInputs} * kInputs, 0.0f);
    for (std::size_t k = 0; k < kInputs; ++k) x[k * kInputs + k] = 1.0f;  // row k takes input k
    for (const Isa isa : testing::runnable_isas()) {
        CAPTURE(name(isa));
        const std::vector<float> y = product(kernels(isa), matrix.matrix, x, kInputs);
        std::size_t wrong = 0;
        for (std::size_t at = 0; at < stored.size(); ++at) {
            const std::size_t o = at / kInputs;
            const std::size_t k = at % kInputs;
            const float got = y[k * static_cast<std::size_t>(outputs) + o];
            if (got != half_to_float(stored[at])) ++wrong;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("Q4_0 blocks multiply as d times n minus 8") {
    std::mt19937 rng{13};
    const int outputs = 20;
    const int inputs = 64;
    std::vector<std::byte> bytes(static_cast<std::size_t>(outputs * inputs / 32) * 18);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    for (std::size_t block = 0; block < bytes.size(); block += 18) {
        const std::uint16_t d = float_to_half(0.05f);
        std::memcpy(bytes.data() + block, &d, 2);
    }
    const OwnedMatrix matrix{
        TensorView{"w", StoredType::Q4_0, outputs, inputs, bytes.data(), bytes.size()},
        PackedType::Q4Sym};
    const std::vector<float> weights = matrix.values();
    // Whole numbers up to 127 with one of them 127 quantise exactly, so the product is exact too.
    std::vector<float> x(static_cast<std::size_t>(inputs));
    for (int k = 0; k < inputs; ++k)
        x[static_cast<std::size_t>(k)] =
            static_cast<float>(k % 32 == 0 ? 127 : static_cast<int>(rng() % 255) - 127);
    std::vector<float> want(static_cast<std::size_t>(outputs));
    reference::matmul(weights, x, {}, want);
    for (const Isa isa : testing::runnable_isas()) {
        const std::vector<float> y = product(kernels(isa), matrix.matrix, x, 1);
        for (int o = 0; o < outputs; ++o)
            CHECK(y[static_cast<std::size_t>(o)] ==
                  doctest::Approx(want[static_cast<std::size_t>(o)]).epsilon(1e-5));
    }
}

TEST_CASE("extreme int8 weights and activations do not saturate on any instruction set") {
    const int inputs = 32;
    std::vector<std::byte> block(34, static_cast<std::byte>(0x80));  // every weight -128
    const std::uint16_t one = float_to_half(1.0f);
    std::memcpy(block.data(), &one, 2);
    const OwnedMatrix matrix{
        TensorView{"w", StoredType::Q8_0, 1, inputs, block.data(), block.size()}, PackedType::Int8};
    for (const float value : {127.0f, -127.0f}) {
        const std::vector<float> x(static_cast<std::size_t>(inputs), value);
        for (const Isa isa : testing::runnable_isas()) {
            CHECK(product(kernels(isa), matrix.matrix, x, 1)[0] ==
                  doctest::Approx(-128.0f * value * inputs).epsilon(1e-6));
        }
    }
}

TEST_CASE("the largest nibbles and activations do not saturate on any instruction set") {
    struct Kind {
        StoredType stored;
        PackedType packed;
        std::size_t scales;  // bytes: float16 1, and m of 1
        float number;        // of a nibble of 15
    };
    const int inputs = 64;
    for (const Kind& kind : {Kind{StoredType::Q4_1, PackedType::Q4, 4, 16.0f},
                             Kind{StoredType::Q4_0, PackedType::Q4Sym, 2, 7.0f}}) {
        const std::size_t block = kind.scales + 16;
        std::vector<std::byte> bytes(2 * block, std::byte{0xFF});
        const std::uint16_t one = float_to_half(1.0f);
        for (std::size_t at = 0; at < bytes.size(); at += block) {
            for (std::size_t half = 0; half < kind.scales; half += sizeof one)
                std::memcpy(bytes.data() + at + half, &one, sizeof one);
        }
        const OwnedMatrix matrix{
            TensorView{"w", kind.stored, 1, inputs, bytes.data(), bytes.size()}, kind.packed};
        for (const float value : {127.0f, -127.0f}) {
            const std::vector<float> x(static_cast<std::size_t>(inputs), value);
            for (const Isa isa : testing::runnable_isas())
                CHECK(product(kernels(isa), matrix.matrix, x, 1)[0] ==
                      kind.number * value * static_cast<float>(inputs));
        }
    }
}

}  // namespace
}  // namespace paceline
