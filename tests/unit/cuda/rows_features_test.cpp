// The kernels of an EAGLE draft's features against plain loops.
#include <cstring>

#include <doctest/doctest.h>

#include "model/kernels/cuda/features.hpp"
#include "tests/unit/cuda/device_arrays.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline::cuda {
namespace {

using test::OnDevice;
using test::random_floats;

constexpr int kRows = 5;  // of a launch for 8
constexpr int kPlaces = 7;
constexpr std::uint16_t kUnset = 0x7b7b;

std::size_t to_size(int count) {
    return static_cast<std::size_t>(count);
}

struct Widths {
    int left, right, stride;
};

/// x as floats, with NaN or worse where nothing was written.
std::vector<float> inputs_of(const Widths& widths,
                             bool wide,
                             const std::vector<float>& left,
                             const std::vector<float>& right,
                             const std::vector<std::int32_t>& places) {
    const OnDevice<float> device_left{left};
    const OnDevice<float> device_right{right};
    const OnDevice<std::int32_t> device_places{places};
    const OnDevice<std::int32_t> rows{std::vector<std::int32_t>{kRows}};
    const std::size_t elements = 8 * to_size(widths.stride);
    const OnDevice<std::uint16_t> x{std::vector<std::uint16_t>(elements * (wide ? 2 : 1), kUnset)};
    Stream stream;
    launch_side_by_side(stream,
                        {.left = device_left.data(),
                         .left_width = widths.left,
                         .right = device_right.data(),
                         .right_width = widths.right,
                         .places = device_places.data(),
                         .rows = rows.data(),
                         .x = x.data(),
                         .stride = widths.stride,
                         .wide = wide},
                        8);
    stream.finish();
    const std::vector<std::uint16_t> bits = x.take();
    std::vector<float> numbers(elements);
    if (wide) {
        std::memcpy(numbers.data(), bits.data(), elements * sizeof(float));
    } else {
        for (std::size_t i = 0; i < elements; ++i) {
            const std::uint32_t word = std::uint32_t{bits[i]} << 16U;
            std::memcpy(&numbers[i], &word, sizeof word);
        }
    }
    return numbers;
}

float rounded(float value) {
    const std::uint32_t word = std::uint32_t{float_to_bfloat(value)} << 16U;
    float number = 0.0f;
    std::memcpy(&number, &word, sizeof number);
    return number;
}

void check_side_by_side(const Widths& widths, bool wide) {
    const std::vector<float> left = random_floats(to_size(kRows * widths.left), 1);
    const std::vector<float> right = random_floats(to_size(kPlaces * widths.right + 1), 2);
    const std::vector<std::int32_t> places{6, -1, 0, 6, 3};
    const std::vector<float> got = inputs_of(widths, wide, left, right, places);
    std::uint32_t unset = kUnset * (wide ? 0x10001U : 0x10000U);
    float nothing = 0.0f;
    std::memcpy(&nothing, &unset, sizeof nothing);
    std::size_t wrong = 0;
    for (int r = 0; r < 8; ++r) {
        for (int c = 0; c < widths.stride; ++c) {
            float want = 0.0f;
            if (r >= kRows) {
                want = nothing;
            } else if (c < widths.left) {
                want = left[to_size(r * widths.left + c)];
            } else if (c < widths.left + widths.right && places[to_size(r)] >= 0) {
                want = right[to_size(places[to_size(r)] * widths.right + c - widths.left)];
            }
            if (r < kRows && !wide) want = rounded(want);
            if (got[to_size(r * widths.stride + c)] != want) ++wrong;
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("two rows side by side are one input, with zeros behind it and for what has no place") {
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope{order};
        for (const bool wide : {false, true}) {
            CAPTURE(wide);
            check_side_by_side({96, 96, 192}, wide);
            check_side_by_side({40, 40, 128}, wide);
            check_side_by_side({300, 0, 320}, wide);  // states alone
        }
    }
}

TEST_CASE("rows are put in their places, and what has none goes nowhere, on all devices alike") {
    constexpr int kStride = 200;
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope{order};
        const std::vector<float> from = random_floats(to_size(kRows * kStride), 3);
        const std::vector<std::int32_t> places{4, -1, 0, 6, -1};
        const OnDevice<float> device_from{from};
        const OnDevice<std::int32_t> device_places{places};
        const OnDevice<std::int32_t> rows{std::vector<std::int32_t>{kRows}};
        const std::vector<float> empty(to_size(kPlaces * kStride), 5.0f);
        const OnDevice<float> to{empty};
        const OnDevice<float> other{empty};
        PutRowsArgs args{.from = device_from.data() + 32,
                         .places = device_places.data(),
                         .rows = rows.data(),
                         .stride = kStride,
                         .columns = 144,
                         .to = to.data() + 32,
                         .others = 1};
        args.other_to[0] = other.data() + 32;
        Stream stream;
        launch_put_rows(stream, args, 8);
        stream.finish();
        std::vector<float> want = empty;
        for (int r = 0; r < kRows; ++r) {
            for (int c = 32; c < 32 + 144 && places[to_size(r)] >= 0; ++c)
                want[to_size(places[to_size(r)] * kStride + c)] = from[to_size(r * kStride + c)];
        }
        CHECK(to.take() == want);
        CHECK(other.take() == want);
    }
}

}  // namespace
}  // namespace paceline::cuda
