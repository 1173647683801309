// The two kernels of a product and every way to spread it over a device: one and the same bits.
#include <array>
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#ifdef PACELINE_EMULATED_DEVICE
#include "tests/emulated/cuda/order.hpp"
#endif
#include "tests/unit/cuda/gemm_fixture.hpp"

namespace paceline::cuda {

using namespace test;

TEST_CASE("every way to spread a product over a device gives the same bits") {
    // Inputs of one step, of one slice, of several of unequal length, of an odd number of steps.
    for (const auto& [outputs, inputs, rows] :
         {std::array{40, 32, 70}, std::array{150, 96, 70}, std::array{24, 1056, 5},
          std::array{72, 608, 131}}) {
        for (const WeightType type : kTypes) {
            CAPTURE(name(type));
            CAPTURE(inputs);
            const Weights weights = make_weights(type, outputs, inputs, false, 17);
            const std::vector<float> x = random_floats(size_of(rows * inputs), 18);
            const std::vector<GemmChoice> choices = all_choices(type, rows);
            const std::vector<float> first = multiply(weights, x, rows, &choices.front());
            for (const GemmChoice& choice : choices) {
                CAPTURE(choice.tile);
                CAPTURE(choice.row_tiles);
                CAPTURE(choice.tiles);
                const std::vector<float> y = multiply(weights, x, rows, &choice);
                CHECK(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)) == 0);
            }
        }
    }
}

#ifndef PACELINE_EMULATED_DEVICE
TEST_CASE(
    "long products have the same bits however they are spread, also where everything is zero") {
    constexpr int kOutputs = 300;
    constexpr int kInputs = 4128;  // slices that end within a stage
    constexpr int kRows = 300;
    const Weights weights = make_weights(WeightType::BF16, kOutputs, kInputs, false, 27);
    std::vector<float> x = random_floats(kRows * kInputs, 28);
    for (int row = 0; row < kRows; row += 3) {
        for (int i = 0; i < kInputs; ++i)
            x[size_of(row * kInputs + i)] = i % 5 == row % 5 ? -0.0f : 0.0f;
    }
    const std::vector<GemmChoice> choices = all_choices(WeightType::BF16, kRows);
    const std::vector<float> first = multiply(weights, x, kRows, &choices.front());
    for (const GemmChoice& choice : choices) {
        CAPTURE(choice.tile);
        CAPTURE(choice.wgmma);
        const std::vector<float> y = multiply(weights, x, kRows, &choice);
        CHECK(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)) == 0);
    }
}
#endif

#ifdef PACELINE_EMULATED_DEVICE
TEST_CASE("the order in which an emulated block's threads run changes nothing of a tiled product") {
    using emulated::Order;
    for (const WeightType type : {WeightType::BF16, WeightType::Int8, WeightType::Q4}) {
        const Weights weights = make_weights(type, 72, 352, false, 20);
        const std::vector<float> x = random_floats(70 * 352, 21);
        for (const bool wgmma : {false, type == WeightType::BF16}) {
            const GemmChoice tiled{kSmallTile, 1, 1, 1, wgmma};
            const std::vector<float> forward = multiply(weights, x, 70, &tiled);
            for (const Order order :
                 {Order{Order::Kind::Backward}, Order{Order::Kind::Shuffled, 7}}) {
                emulated::set_order(order);
                CHECK(multiply(weights, x, 70, &tiled) == forward);
            }
            emulated::set_order({});
        }
    }
}
#endif

namespace {

constexpr int kProcessors = 132;

DeviceMatrix matrix_of(WeightType type, int outputs, int inputs) {
    DeviceMatrix matrix;
    matrix.type = type;
    matrix.outputs = outputs;
    matrix.inputs = inputs;
    return matrix;
}

/// The kernel in short: "64w" is a tile of 64 with wgmma, "32x16" a block of outputs x rows.
std::string chosen(const DeviceMatrix& matrix, int rows, bool wgmma = true) {
    const GemmChoice choice = choose_gemm(matrix, {rows, kProcessors, wgmma});
    if (choice.tile > 0) return std::to_string(choice.tile) + (choice.wgmma ? "w" : "");
    CHECK(choice.tiles == batch_tiles(matrix.type, choice.row_tiles));
    CHECK(choice.groups == divided_up(rows, choice.row_tiles * kTileRows));
    return std::to_string(choice.tiles * kTileOutputs) + "x" +
           std::to_string(choice.row_tiles * kTileRows);
}

}  // namespace

TEST_CASE(
    "few rows of bf16 weights take the batch kernel, many rows squares that fill the device") {
    const DeviceMatrix square = matrix_of(WeightType::BF16, 4096, 4096);
    CHECK(chosen(square, 8) == "16x8");
    CHECK(chosen(square, 9) == "16x16");
    CHECK(chosen(square, 17) == "32x32");
    CHECK(chosen(square, 64) == "32x32");  // 64 squares would leave half of the device idle
    CHECK(chosen(square, 128) == "64w");
    CHECK(chosen(square, 128, false) == "64");
    CHECK(chosen(square, 512) == "128w");
    const DeviceMatrix wide = matrix_of(WeightType::BF16, 28672, 4096);
    CHECK(chosen(wide, 16) == "16x16");
    CHECK(chosen(wide, 17) == "64w");
    CHECK(chosen(wide, 17, false) == "32x32");
    CHECK(chosen(wide, 64, false) == "64");
    CHECK(chosen(wide, 65) == "128w");
    const DeviceMatrix most = matrix_of(WeightType::BF16, 6144, 4096);  // 96 squares
    CHECK(chosen(most, 32) == "32x32");
    CHECK(chosen(most, 33) == "64");
    const DeviceMatrix narrow = matrix_of(WeightType::BF16, 2048, 8192);
    CHECK(chosen(narrow, 32) == "16x16");
    CHECK(chosen(narrow, 64) == "32x32");
    CHECK(chosen(narrow, 128) == "32x32");
    CHECK(chosen(narrow, 129) == "64w");
}

TEST_CASE("small products take many small blocks") {
    const DeviceMatrix small = matrix_of(WeightType::BF16, 576, 1536);
    CHECK(chosen(small, 32) == "16x8");
    CHECK(chosen(small, 33) == "16x16");
    CHECK(chosen(small, 128) == "16x16");
    CHECK(chosen(small, 129) == "64w");
}

TEST_CASE("each type of weights has the blocks that were fastest for it") {
    CHECK(chosen(matrix_of(WeightType::Int8, 4096, 4096), 16) == "16x16");
    CHECK(chosen(matrix_of(WeightType::Int8, 6144, 4096), 64) == "32x32");
    CHECK(chosen(matrix_of(WeightType::Int8, 28672, 4096), 64) == "64");
    CHECK(chosen(matrix_of(WeightType::Q4, 4096, 4096), 9) == "32x16");
    CHECK(chosen(matrix_of(WeightType::Q4Sym, 4096, 4096), 64) == "32x16");
    CHECK(chosen(matrix_of(WeightType::Q4K, 4096, 4096), 64) == "16x16");
    CHECK(chosen(matrix_of(WeightType::Q4K, 6144, 4096), 32) == "16x16");
    CHECK(chosen(matrix_of(WeightType::Q4K, 6144, 4096), 33) == "64");
    const DeviceMatrix floats = matrix_of(WeightType::F32, 4096, 4096);
    CHECK(chosen(floats, 200) == "16x32");  // float32 has the batch kernel alone
}

namespace {

/// All that a product leaves behind, byte by byte.
struct Left {
    std::vector<float> out, squares;
    std::vector<std::uint16_t> next;
    bool operator==(const Left& other) const {
        const auto same = [](const auto& a, const auto& b) {
            return a.size() == b.size() &&
                   std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
        };
        return same(out, other.out) && same(squares, other.squares) && same(next, other.next);
    }
};

/// A product of many rows with a norm in front and what `kind` says after it. Without a choice the
/// factors of the norm are put aside first.
Left finished(FinishKind kind, const GemmChoice* choice) {
    constexpr int kOutputs = 80;  // of each of two
    constexpr int kInputs = 96;
    constexpr int kRows = 21;
    constexpr int kStride = padded_inputs(kOutputs);
    const bool gated = kind == FinishKind::Gated;
    const Weights weights = make_weights(WeightType::BF16, kOutputs, kInputs, gated, 22);
    std::vector<float> x = random_floats(kRows * kInputs, 23);
    const OnDevice<std::byte> device_x = make_rows(x, kRows, kInputs, WeightType::BF16);
    const OnDevice<std::int32_t> count{{kRows}};
    std::vector<std::int32_t> backwards(kRows);
    for (int r = 0; r < kRows; ++r) backwards[size_of(r)] = kRows - 1 - r;
    const OnDevice<std::int32_t> places{backwards};
    const OnDevice<float> out{random_floats(kRows * kOutputs, 24)};
    const OnDevice<float> norm{random_floats(kOutputs, 25)};
    std::vector<float> sums = random_floats(kRows * tiles_of(padded_inputs(kInputs)), 26);
    for (float& sum : sums) sum *= sum;
    const OnDevice<float> squares{sums};
    const OnDevice<float> factors{std::vector<float>(kRows, std::nanf(""))};
    const OnDevice<std::uint16_t> next{std::vector<std::uint16_t>(size_of(kRows * kStride))};
    const OnDevice<float> next_squares{std::vector<float>(size_of(kRows * tiles_of(kStride)))};
    GemmArgs args;
    args.weights = weights.matrix;
    args.x = device_x.data();
    args.x_stride = padded_inputs(kInputs);
    args.rows = count.data();
    args.finish.kind = kind;
    args.finish.norm = {squares.data(), tiles_of(padded_inputs(kInputs)), kInputs, 1e-5f};
    args.finish.out = out.data();
    args.finish.out_stride = kOutputs;
    args.finish.row_index = places.data();
    args.finish.next = {norm.data(), next.data(), next_squares.data(), kStride, false};
    Stream stream;
    if (choice != nullptr) {
        launch_gemm_as(stream, args, *choice, kRows);
    } else {
        args.finish.norm.factors = factors.data();
        launch_gemm(stream, args, {kRows});
    }
    stream.finish();
    return {out.take(), next_squares.take(), next.take()};
}

}  // namespace

TEST_CASE("what is fused after a product has the same bits however it is spread") {
    for (const FinishKind kind :
         {FinishKind::Store, FinishKind::Residual, FinishKind::Input, FinishKind::Gated}) {
        CAPTURE(static_cast<int>(kind));
        const Left first = finished(kind, nullptr);
        for (const GemmChoice& choice : all_choices(WeightType::BF16, 21)) {
            CAPTURE(choice.tile);
            CAPTURE(choice.row_tiles);
            CAPTURE(choice.tiles);
            CHECK(finished(kind, &choice) == first);
        }
    }
}

}  // namespace paceline::cuda
