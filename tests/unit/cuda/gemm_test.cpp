// The product kernel against a loop in double, for every type of weights, and its promises: a row's
// bits are its own, and what is fused after a product is what a kernel of its own would give.
#include "model/kernels/cuda/gemm/gemm.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#ifdef PACELINE_EMULATED_DEVICE
#include "tests/emulated/cuda/order.hpp"
#endif
#include "model/kernels/cuda/rows.hpp"
#include "tests/unit/cuda/gemm_fixture.hpp"

namespace paceline::cuda {

using namespace test;

TEST_CASE(
    "a product is that of a loop in double, for all types, ragged shapes and numbers of rows") {
    for (const WeightType type : kTypes) {
        for (const auto& [outputs, inputs, rows] :
             {std::array{16, 64, 1}, std::array{40, 192, 8}, std::array{16, 1088, 3},
              std::array{7, 576, 11}, std::array{33, 320, 20}, std::array{16, 128, 64}}) {
            CAPTURE(name(type));
            CAPTURE(outputs);
            CAPTURE(inputs);
            CAPTURE(rows);
            const Weights weights = make_weights(type, outputs, inputs, false, 1);
            std::vector<float> x = random_floats(size_of(rows * inputs), 2);
            const std::vector<float> y = multiply(weights, x, rows);
            make_rows(x, rows, inputs, type);
            double worst = 0.0;
            for (int row = 0; row < rows; ++row) {
                for (int o = 0; o < outputs; ++o) {
                    const double want = expected(weights.values, x, o, row, inputs);
                    worst = std::max(
                        worst, std::abs(want - static_cast<double>(y[size_of(row * outputs + o)])));
                }
            }
            CHECK(worst < 1e-5 * std::sqrt(static_cast<double>(inputs)));
        }
    }
}

TEST_CASE("a row's product has the same bits alone, among others and in any place") {
    constexpr int kOutputs = 24;
    constexpr int kInputs = 640;
    for (const WeightType type : kTypes) {
        CAPTURE(name(type));
        const Weights weights = make_weights(type, kOutputs, kInputs, false, 3);
        const std::vector<float> x = random_floats(size_of(40 * kInputs), 4);
        const std::vector<float> all = multiply(weights, x, 40);
        for (const auto& [first, count] : {std::pair{0, 1}, std::pair{17, 1}, std::pair{5, 8},
                                           std::pair{39, 1}, std::pair{8, 13}}) {
            const std::vector<float> part = multiply(
                weights, {x.begin() + first * kInputs, x.begin() + (first + count) * kInputs},
                count);
            CHECK(std::memcmp(part.data(), &all[size_of(first * kOutputs)],
                              part.size() * sizeof(float)) == 0);
        }
    }
}

#ifdef PACELINE_EMULATED_DEVICE
TEST_CASE("the order in which an emulated block's threads run changes nothing") {
    const Weights weights = make_weights(WeightType::BF16, 16, 1024, false, 5);
    const std::vector<float> x = random_floats(8 * 1024, 6);
    const std::vector<float> forward = multiply(weights, x, 8);
    using emulated::Order;
    for (const Order order : {Order{Order::Kind::Backward}, Order{Order::Kind::Shuffled, 7}}) {
        emulated::set_order(order);
        CHECK(multiply(weights, x, 8) == forward);
    }
    emulated::set_order({});
}

#endif

TEST_CASE("gate and up are multiplied side by side and joined") {
    constexpr int kOutputs = 20;
    constexpr int kInputs = 128;
    constexpr int kRows = 5;
    for (const WeightType type : kTypes) {
        CAPTURE(name(type));
        const Weights weights = make_weights(type, kOutputs, kInputs, true, 8);
        std::vector<float> x = random_floats(size_of(kRows * kInputs), 9);
        const OnDevice<std::byte> device_x = make_rows(x, kRows, kInputs, type);
        const OnDevice<std::int32_t> count{{kRows}};
        const bool wide = type == WeightType::F32;
        const OnDevice<float> next{std::vector<float>(size_of(kRows * 64), 0.0f)};
        GemmArgs args;
        args.weights = weights.matrix;
        args.x = device_x.data();
        args.x_stride = kInputs;
        args.rows = count.data();
        args.finish.kind = FinishKind::Gated;
        args.finish.next.x = next.data();
        args.finish.next.stride = 64;
        args.finish.next.wide = wide;
        Stream stream;
        launch_gemm(stream, args, {kRows});
        stream.finish();
        const std::vector<float> got = next.take();
        for (int row = 0; row < kRows; ++row) {
            for (int o = 0; o < kOutputs; ++o) {
                const double gate = expected(weights.values, x, o, row, kInputs);
                const double up = expected(weights.values, x, kOutputs + o, row, kInputs);
                const double want = gate / (1.0 + std::exp(-gate)) * up;
                std::uint16_t bits[2];
                std::memcpy(bits, &got[size_of(row * 64 + o) / (wide ? 1 : 2)], sizeof bits);
                const float value =
                    wide ? got[size_of(row * 64 + o)] : bfloat_to_float(bits[o % 2]);
                CHECK(static_cast<double>(value) ==
                      doctest::Approx(want).epsilon(wide ? 1e-4 : 1e-2));
            }
        }
    }
}

TEST_CASE("gate and up as two products have the bits of the joint product") {
    constexpr int kOutputs = 48;
    constexpr int kInputs = 320;
    for (const auto& [type, rows] :
         {std::pair{WeightType::Q4K, 5}, std::pair{WeightType::Q6K, 70},
          std::pair{WeightType::F32, 5}, std::pair{WeightType::BF16, 70}}) {
        CAPTURE(name(type));
        const Weights both = make_weights(type, kOutputs, kInputs, true, 8);
        const Weights all = make_weights(type, 2 * kOutputs, kInputs, false, 8);
        REQUIRE(both.values == all.values);
        std::vector<float> x = random_floats(size_of(rows * kInputs), 9);
        const OnDevice<std::byte> device_x = make_rows(x, rows, kInputs, type);
        const OnDevice<std::int32_t> count{{rows}};
        const OnDevice<float> gates{std::vector<float>(size_of(rows * 2 * kOutputs))};
        GemmArgs args;
        args.x = device_x.data();
        args.x_stride = padded_inputs(kInputs);
        args.rows = count.data();
        args.finish.next.stride = 64;
        args.finish.next.wide = type == WeightType::F32;
        Stream stream;
        const auto finished = [&](FinishKind kind, const DeviceMatrix& weights) {
            const OnDevice<float> next{std::vector<float>(size_of(rows * 64), 0.0f)};
            GemmArgs one = args;
            one.weights = weights;
            one.finish.kind = kind;
            one.finish.next.x = next.data();
            one.finish.out = gates.data();
            one.finish.out_stride = 2 * kOutputs;
            launch_gemm(stream, one, {rows});
            stream.finish();
            return next.take();
        };
        const std::vector<float> wanted = finished(FinishKind::Gated, both.matrix);
        // The rows of `all` are gates, then ups: tiles of 16 outputs each.
        DeviceMatrix up = all.matrix;
        up.outputs = kOutputs;
        up.values =
            static_cast<const std::byte*>(up.values) +
            (is_row_major(type) ? size_of(kOutputs * up.stride) * input_bytes(type)
                                : size_of(kOutputs / kTileOutputs) * tile_bytes(type, kInputs));
        (void)finished(FinishKind::Store, all.matrix);
        const std::vector<float> got = finished(FinishKind::GatedBy, up);
        CHECK(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) == 0);
    }
}

TEST_CASE("a residual made ready by a product has the bits that the kernel of its own gives") {
    constexpr int kDim = 72;
    constexpr int kInputs = 96;
    constexpr int kRows = 3;
    constexpr int kStride = padded_inputs(kDim);
    const Weights weights = make_weights(WeightType::BF16, kDim, kInputs, false, 10);
    std::vector<float> x = random_floats(size_of(kRows * kInputs), 11);
    const OnDevice<std::byte> device_x = make_rows(x, kRows, kInputs, WeightType::BF16);
    const OnDevice<std::int32_t> count{{kRows}};
    const OnDevice<std::int32_t> places{{2, 0, 4}};
    const std::vector<float> before = random_floats(5 * kDim, 12);
    const OnDevice<float> hidden{before};
    const OnDevice<float> norm{random_floats(kDim, 13)};
    const auto inputs_of = [&](bool fused) {
        const OnDevice<std::uint16_t> ready{std::vector<std::uint16_t>(size_of(kRows * kStride))};
        const OnDevice<float> squares{std::vector<float>(size_of(kRows * tiles_of(kStride)), 0.0f)};
        NextInput next;
        next.weights = norm.data();
        next.x = ready.data();
        next.squares = squares.data();
        next.stride = kStride;
        Stream stream;
        if (fused) {
            GemmArgs args;
            args.weights = weights.matrix;
            args.x = device_x.data();
            args.x_stride = padded_inputs(kInputs);
            args.rows = count.data();
            args.finish.kind = FinishKind::Residual;
            args.finish.out = hidden.data();
            args.finish.out_stride = kDim;
            args.finish.row_index = places.data();
            args.finish.next = next;
            launch_gemm(stream, args, {kRows});
        } else {
            launch_ready(stream, {hidden.data(), places.data(), count.data(), kDim, next}, kRows);
        }
        stream.finish();
        return std::pair{ready.take(), squares.take()};
    };
    const auto fused = inputs_of(true);
    const std::vector<float> after = hidden.take();
    CHECK(std::equal(after.begin() + kDim, after.begin() + 2 * kDim, before.begin() + kDim));
    CHECK(static_cast<double>(after[2 * kDim + 5]) ==
          doctest::Approx(static_cast<double>(before[2 * kDim + 5]) +
                          expected(weights.values, x, 5, 0, kInputs)));
    CHECK(fused == inputs_of(false));
}

TEST_CASE("the norm in front of a product is a factor after it") {
    constexpr int kDim = 96;
    constexpr int kRows = 2;
    const Weights weights = make_weights(WeightType::F32, 16, kDim, false, 14);
    const std::vector<float> h = random_floats(kRows * kDim, 15);
    const OnDevice<float> hidden{h};
    const OnDevice<std::int32_t> count{{kRows}};
    const OnDevice<std::int32_t> places{{0, 1}};
    const std::vector<float> norm = random_floats(kDim, 16);
    const OnDevice<float> device_norm{norm};
    const OnDevice<float> ready{std::vector<float>(kRows * 128, 0.0f)};
    const OnDevice<float> squares{std::vector<float>(kRows * 8, 0.0f)};
    const OnDevice<float> out{std::vector<float>(kRows * 16)};
    NextInput next{device_norm.data(), ready.data(), squares.data(), 128, true};
    Stream stream;
    launch_ready(stream, {hidden.data(), places.data(), count.data(), kDim, next}, kRows);
    GemmArgs args;
    args.weights = weights.matrix;
    args.x = ready.data();
    args.x_stride = 128;
    args.rows = count.data();
    args.finish.norm = {squares.data(), 8, kDim, 1e-5f};
    args.finish.out = out.data();
    args.finish.out_stride = 16;
    launch_gemm(stream, args, {kRows});
    stream.finish();
    const std::vector<float> y = out.take();
    for (int row = 0; row < kRows; ++row) {
        double mean = 0.0;
        for (int i = 0; i < kDim; ++i) {
            const auto value = static_cast<double>(h[size_of(row * kDim + i)]);
            mean += value * value / kDim;
        }
        for (int o = 0; o < 16; ++o) {
            double want = 0.0;
            for (int i = 0; i < kDim; ++i) {
                want += static_cast<double>(weights.values[size_of(o * kDim + i)]) *
                        static_cast<double>(h[size_of(row * kDim + i)]) *
                        static_cast<double>(norm[size_of(i)]) / std::sqrt(mean + 1e-5);
            }
            CHECK(static_cast<double>(y[size_of(row * 16 + o)]) ==
                  doctest::Approx(want).epsilon(1e-4));
        }
    }
}

}  // namespace paceline::cuda
