// Products of fewer rows than they are launched for, down to those of a stopped batch: all that
// they leave behind.
#include <cstring>

#include <doctest/doctest.h>

#include "tests/unit/cuda/emulated_fixture.hpp"
#include "tests/unit/cuda/gemm_fixture.hpp"

namespace paceline::cuda {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr FinishKind kKinds[] = {FinishKind::Store, FinishKind::Residual, FinishKind::Input,
                                 FinishKind::Gated};
constexpr int kWidth = 128;   // of a row of each output
constexpr int kPlaces = 24;   // of hidden states: more than rows
constexpr int kRowsMax = 20;  // of the arrays

/// The bytes of all that a product writes.
struct Left {
    std::vector<float> out;
    std::vector<std::byte> next;
    std::vector<float> squares;

    [[nodiscard]] bool same_bits(const Left& other) const {
        return std::memcmp(out.data(), other.out.data(), out.size() * sizeof(float)) == 0 &&
               next == other.next &&
               std::memcmp(squares.data(), other.squares.data(), squares.size() * sizeof(float)) ==
                   0;
    }
};

/// A product of one shape with everything that can be in front of it and after it.
class Call {
public:
    Call(WeightType type, FinishKind kind, int outputs, int inputs)
        : type_{type},
          kind_{kind},
          weights_{make_weights(type, outputs, inputs, kind == FinishKind::Gated, 1)},
          values_{random_floats(size_of(kRowsMax * inputs), 2)},
          x_{make_rows(values_, kRowsMax, inputs, type)} {
        std::vector<std::int32_t> places(kRowsMax);
        for (int r = 0; r < kRowsMax; ++r) places[size_of(r)] = (r * 7 + 3) % kPlaces;
        places_ = OnDevice<std::int32_t>{places};
    }

    /// `there` of the launch's rows exist: 0 if the batch was stopped.
    [[nodiscard]] Left run(int rows, int there) const {
        const OnDevice<std::int32_t> count{{there}};
        const OnDevice<float> out{random_floats(size_of(kPlaces * kWidth), 3)};
        const OnDevice<std::byte> next{
            std::vector<std::byte>(size_of(kRowsMax * kWidth) * 4, std::byte{0x11})};
        const OnDevice<float> squares{
            std::vector<float>(size_of(kRowsMax * tiles_of(kWidth)), 5.0f)};
        GemmArgs args;
        args.weights = weights_.matrix;
        args.x = x_.data();
        args.x_stride = padded_inputs(weights_.matrix.inputs);
        args.rows = count.data();
        args.finish.kind = kind_;
        args.finish.out = out.data();
        args.finish.out_stride = kWidth;
        args.finish.row_index = places_.data();
        args.finish.next = {norm_.data(), next.data(), squares.data(), kWidth,
                            type_ == WeightType::F32};
        if (kind_ == FinishKind::Store || kind_ == FinishKind::Gated)
            args.finish.norm = {old_squares_.data(), tiles_of(kWidth), kWidth, 1e-5f, nullptr};
        Stream stream;
        launch_gemm(stream, args, {rows, 1});
        stream.finish();
        return {out.take(), next.take(), squares.take()};
    }

private:
    WeightType type_;
    FinishKind kind_;
    Weights weights_;
    std::vector<float> values_;
    OnDevice<std::byte> x_;
    OnDevice<std::int32_t> places_;
    OnDevice<float> norm_{random_floats(kWidth, 4)};
    OnDevice<float> old_squares_{std::vector<float>(size_of(kRowsMax * tiles_of(kWidth)), 16.0f)};
};

TEST_CASE("a product launched for more rows than there are leaves what one for those rows leaves") {
    for (const WeightType type : kTypes) {
        for (const FinishKind kind : kKinds) {
            CAPTURE(name(type));
            CAPTURE(static_cast<int>(kind));
            // Ragged outputs; one slice, in which blocks of a warp go round their rows.
            const Call call{type, kind, 40, 192};
            CHECK(call.run(16, 11).same_bits(call.run(11, 11)));
            CHECK(call.run(kRowsMax, 3).same_bits(call.run(3, 3)));
        }
    }
}

TEST_CASE("a product of a stopped batch leaves everything as it is, in every order of threads") {
    for (const WeightType type : kTypes) {
        for (const FinishKind kind : kKinds) {
            CAPTURE(name(type));
            CAPTURE(static_cast<int>(kind));
            const Call call{type, kind, 40, 320};
            const Left stopped = call.run(16, 0);
            CHECK_FALSE(call.run(16, 16).same_bits(stopped));
            CHECK(stopped.next[5] == std::byte{0x11});
        }
    }
    const Call call{WeightType::BF16, FinishKind::Residual, 40, 512};
    const Left base = call.run(9, 9);
    const Left stopped = call.run(9, 0);
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope{order};
        CHECK(call.run(9, 9).same_bits(base));
        CHECK(call.run(9, 0).same_bits(stopped));
    }
}

#ifdef PACELINE_EMULATED_DEVICE
TEST_CASE("a product lets the next kernel start early") {
    const Call call{WeightType::BF16, FinishKind::Store, 40, 64};
    const std::uint64_t before = emulated::early_launches();
    (void)call.run(16, 16);
    CHECK(emulated::early_launches() - before == 1);
}
#endif

}  // namespace
}  // namespace paceline::cuda
