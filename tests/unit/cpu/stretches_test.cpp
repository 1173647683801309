// Stretches in which a file's matrices are packed: every tile once, with the bytes that its rows
// lie in.
#include "model/cpu/stretches.hpp"

#include <cstring>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace paceline {
namespace {

constexpr int kCols = 64;
constexpr std::size_t kRowBytes = 4 * kCols;

struct Tensor {
    std::vector<float> values;
    TensorView view;
    PackedMatrix matrix;
    std::vector<std::byte> packed;

    explicit Tensor(int rows, int head_rows = 0) : values(static_cast<std::size_t>(rows) * kCols) {
        std::mt19937 rng{7};
        for (float& value : values) value = static_cast<float>(rng() % 1000);
        const auto bytes = std::as_bytes(std::span(values));
        view = {"t", StoredType::F32, rows, kCols, bytes.data(), bytes.size()};
        view.head_rows = head_rows;
        matrix = {PackedType::F32, rows, kCols, nullptr};
        packed.resize(matrix.bytes());
        matrix.data = packed.data();
    }
};

TEST_CASE("stretches hold every tile of every matrix once, in order, and all bytes of the file") {
    Tensor first{100};
    Tensor second{16};
    Tensor third{33};
    const std::vector<WeightSource> sources = {
        {&first.matrix, &first.view}, {&second.matrix, &second.view}, {&third.matrix, &third.view}};
    for (const std::size_t bytes :
         {std::size_t{1}, 16 * kRowBytes, 40 * kRowBytes, std::size_t{1} << 20}) {
        CAPTURE(bytes);
        const std::vector<Stretch> list = stretches_of(sources, bytes);
        std::size_t next = 0;
        for (const WeightSource& source : sources) {
            int tile = 0;
            const std::byte* at = source.tensor->data;
            for (; next < list.size() && list[next].source == &source; ++next) {
                CHECK(list[next].first_tile == tile);
                CHECK(list[next].last_tile > tile);
                CHECK(list[next].bytes.data() == at);
                tile = list[next].last_tile;
                at += list[next].bytes.size();
            }
            CHECK(tile == source.matrix->tiles());
            CHECK(at == source.tensor->data + source.tensor->bytes);
        }
        CHECK(next == list.size());
    }
}

TEST_CASE("a stretch of rows that are stored in another order has whole heads") {
    // Rows of a head of 24 lie anywhere in it: a stretch that ended with a tile would need rows of
    // the next one.
    Tensor tensor{96, 24};
    const WeightSource source{&tensor.matrix, &tensor.view};
    const std::vector<Stretch> list = stretches_of({&source, 1}, 1);
    REQUIRE(list.size() == 2);
    for (const Stretch& stretch : list) {
        const std::byte* end = stretch.bytes.data() + stretch.bytes.size();
        for (int row = stretch.first_tile * kTileRows; row < stretch.last_tile * kTileRows; ++row) {
            CHECK(tensor.view.row(row) >= stretch.bytes.data());
            CHECK(tensor.view.row(row) + kRowBytes <= end);
        }
    }
}

TEST_CASE("a stretch has tiles for all threads, however long its rows are") {
    Tensor tensor{100};
    const WeightSource source{&tensor.matrix, &tensor.view};
    const std::vector<Stretch> list = stretches_of({&source, 1}, 1, 4);
    REQUIRE(list.size() == 2);
    CHECK(list[0].last_tile == 4);
    CHECK(list[1].last_tile == 7);
}

TEST_CASE("a tensor without bytes is one stretch") {
    Tensor tensor{80};
    tensor.view.data = nullptr;
    const WeightSource source{&tensor.matrix, &tensor.view};
    const std::vector<Stretch> list = stretches_of({&source, 1}, 1);
    REQUIRE(list.size() == 1);
    CHECK(list[0].bytes.empty());
    CHECK(list[0].last_tile == tensor.matrix.tiles());
}

}  // namespace
}  // namespace paceline
