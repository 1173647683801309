// Products whose outputs are shared among devices: each device multiplies a range of them and puts
// what it makes into the memory of all. Here all of them lie on one device.
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "model/kernels/cuda/rows.hpp"
#include "tests/unit/cuda/gemm_fixture.hpp"

namespace paceline::cuda {
namespace {

using namespace test;

/// A device's part of a matrix's outputs: whole tiles, or the rest.
struct Range {
    int first;
    int count;
};

DeviceMatrix part_of(const DeviceMatrix& whole, const Range& range) {
    DeviceMatrix part = whole;
    part.outputs = range.count;
    const auto moved = [&](const void* values) -> const void* {
        if (values == nullptr) return nullptr;
        const auto* at = static_cast<const std::byte*>(values);
        if (is_row_major(whole.type))
            return at + size_of(range.first * whole.stride) * input_bytes(whole.type);
        const int tile = range.first / (whole.paired ? 8 : kTileOutputs);
        return at + size_of(tile) * tile_bytes(whole.type, whole.inputs);
    };
    part.values = moved(whole.values);
    part.second = moved(whole.second);
    return part;
}

/// What a device has of rows: hidden states, and the input of the next product.
struct Memory {
    Memory(const std::vector<float>& states, int rows, int stride)
        : hidden{states},
          input{std::vector<float>(size_of(rows * stride), 0.0f)},
          squares{std::vector<float>(size_of(rows * tiles_of(stride)), 0.0f)} {}
    OnDevice<float> hidden;
    OnDevice<float> input;  // room for floats, whatever is put there
    OnDevice<float> squares;
};

bool same(const OnDevice<float>& a, const OnDevice<float>& b) {
    const std::vector<float> x = a.take();
    const std::vector<float> y = b.take();
    return std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

/// The next product's input of column `first` on, in one memory and in the others.
NextInput input_from(const std::vector<std::unique_ptr<Memory>>& all,
                     std::size_t own,
                     int first,
                     int stride,
                     bool wide) {
    const auto x_of = [&](const Memory& one) -> void* {
        return reinterpret_cast<std::byte*>(one.input.data()) + size_of(first) * (wide ? 4 : 2);
    };
    NextInput next;
    next.x = x_of(*all[own]);
    next.squares = all[own]->squares.data() + first / kTileOutputs;
    next.stride = stride;
    next.wide = wide;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (i == own) continue;
        next.other_x[next.others] = x_of(*all[i]);
        next.other_squares[next.others++] = all[i]->squares.data() + first / kTileOutputs;
    }
    return next;
}

TEST_CASE("a residual by ranges of outputs, put into every memory, has the bits of the whole") {
    constexpr int kDim = 200;
    constexpr int kInputs = 512;
    constexpr int kStride = padded_inputs(kDim);
    const std::vector<Range> ranges{{0, 16}, {16, 112}, {128, 72}};
    for (const int rows : {3, 20, 70}) {
        for (const WeightType type : {WeightType::F32, WeightType::BF16, WeightType::Int8,
                                      WeightType::Q4, WeightType::Q4K, WeightType::Q6K}) {
            CAPTURE(rows);
            CAPTURE(name(type));
            const bool wide = type == WeightType::F32;
            const Weights weights = make_weights(type, kDim, kInputs, false, 61);
            std::vector<float> x = random_floats(size_of(rows * kInputs), 62);
            const OnDevice<std::byte> device_x = make_rows(x, rows, kInputs, type);
            const OnDevice<std::int32_t> count{{rows}};
            std::vector<std::int32_t> order(size_of(rows));
            for (int r = 0; r < rows; ++r) order[size_of(r)] = rows - 1 - r;
            const OnDevice<std::int32_t> places{order};
            const OnDevice<float> norm{random_floats(kDim, 63)};
            const std::vector<float> states = random_floats(size_of(rows * kDim), 64);
            Stream stream;
            const auto run = [&](const std::vector<std::unique_ptr<Memory>>& all, std::size_t own,
                                 const Range& range) {
                GemmArgs args;
                args.weights = part_of(weights.matrix, range);
                args.x = device_x.data();
                args.x_stride = padded_inputs(kInputs);
                args.rows = count.data();
                args.finish.kind = FinishKind::Residual;
                args.finish.out = all[own]->hidden.data() + range.first;
                args.finish.out_stride = kDim;
                if (own > 0) args.finish.out_also = all[0]->hidden.data() + range.first;
                args.finish.row_index = places.data();
                args.finish.next = input_from(all, own, range.first, kStride, wide);
                args.finish.next.weights = norm.data() + range.first;
                launch_gemm(stream, args, {rows});
            };
            std::vector<std::unique_ptr<Memory>> alone;
            alone.push_back(std::make_unique<Memory>(states, rows, kStride));
            run(alone, 0, {0, kDim});
            std::vector<std::unique_ptr<Memory>> shared;
            for (std::size_t i = 0; i < ranges.size(); ++i)
                shared.push_back(std::make_unique<Memory>(states, rows, kStride));
            for (std::size_t i = 0; i < ranges.size(); ++i) run(shared, i, ranges[i]);
            stream.finish();
            CHECK(same(shared[0]->hidden, alone[0]->hidden));
            CHECK_FALSE(same(shared[1]->hidden, alone[0]->hidden));
            for (const std::unique_ptr<Memory>& one : shared) {
                CHECK(same(one->input, alone[0]->input));
                CHECK(same(one->squares, alone[0]->squares));
            }
            // The kernel that makes rows ready by itself, by the same ranges.
            std::vector<std::unique_ptr<Memory>> ready;
            for (std::size_t i = 0; i < ranges.size(); ++i)
                ready.push_back(std::make_unique<Memory>(alone[0]->hidden.take(), rows, kStride));
            for (std::size_t i = 0; i < ranges.size(); ++i) {
                ReadyArgs args{ready[i]->hidden.data() + ranges[i].first, places.data(),
                               count.data(), kDim,
                               input_from(ready, i, ranges[i].first, kStride, wide)};
                args.next.weights = norm.data() + ranges[i].first;
                args.columns = ranges[i].count;
                launch_ready(stream, args, rows);
            }
            stream.finish();
            for (const std::unique_ptr<Memory>& one : ready) {
                CHECK(same(one->input, alone[0]->input));
                CHECK(same(one->squares, alone[0]->squares));
            }
        }
    }
}

TEST_CASE("gate and up by ranges of outputs, put into every memory, have the bits of the whole") {
    constexpr int kOutputs = 88;
    constexpr int kInputs = 256;
    constexpr int kStride = padded_inputs(kOutputs);
    const std::vector<Range> ranges{{0, 32}, {32, 16}, {48, 40}};
    for (const int rows : {4, 70}) {
        for (const WeightType type : {WeightType::F32, WeightType::BF16, WeightType::Q4}) {
            CAPTURE(rows);
            CAPTURE(name(type));
            const Weights weights = make_weights(type, kOutputs, kInputs, true, 65);
            std::vector<float> x = random_floats(size_of(rows * kInputs), 66);
            const OnDevice<std::byte> device_x = make_rows(x, rows, kInputs, type);
            const OnDevice<std::int32_t> count{{rows}};
            Stream stream;
            const auto run = [&](const std::vector<std::unique_ptr<Memory>>& all, std::size_t own,
                                 const Range& range) {
                GemmArgs args;
                args.weights = part_of(weights.matrix, range);
                args.x = device_x.data();
                args.x_stride = padded_inputs(kInputs);
                args.rows = count.data();
                args.finish.kind = FinishKind::Gated;
                args.finish.next = input_from(all, own, range.first, kStride, false);
                launch_gemm(stream, args, {rows});
            };
            std::vector<std::unique_ptr<Memory>> alone;
            alone.push_back(std::make_unique<Memory>(std::vector<float>(1), rows, kStride));
            run(alone, 0, {0, kOutputs});
            std::vector<std::unique_ptr<Memory>> shared;
            for (std::size_t i = 0; i < ranges.size(); ++i)
                shared.push_back(std::make_unique<Memory>(std::vector<float>(1), rows, kStride));
            for (std::size_t i = 0; i < ranges.size(); ++i) run(shared, i, ranges[i]);
            stream.finish();
            for (const std::unique_ptr<Memory>& one : shared)
                CHECK(same(one->input, alone[0]->input));
        }
    }
}

TEST_CASE("each device embeds the tokens whose rows it has, for all of them") {
    constexpr int kInputs = 96;
    const Weights table = make_weights(WeightType::Q4, 50, kInputs, false, 67);
    const OnDevice<std::int32_t> tokens{std::vector<std::int32_t>{0, 15, 16, 49, -1}};
    const OnDevice<std::int32_t> count{{5}};
    const std::vector<float> before(size_of(5 * kInputs), 7.0f);
    Stream stream;
    const OnDevice<float> alone{before};
    launch_embed(stream, {table.matrix, tokens.data(), count.data(), alone.data()}, 8);
    const OnDevice<float> first{before};
    const OnDevice<float> second{before};
    const auto embed = [&](const Range& range, const OnDevice<float>& own,
                           const OnDevice<float>& other) {
        EmbedArgs args{part_of(table.matrix, range), tokens.data(), count.data(), own.data()};
        args.first_token = range.first;
        args.others = 1;
        args.other_hidden[0] = other.data();
        launch_embed(stream, args, 8);
    };
    embed({0, 16}, first, second);
    embed({16, 34}, second, first);
    stream.finish();
    CHECK(same(first, alone));
    CHECK(same(second, alone));
}

}  // namespace
}  // namespace paceline::cuda
