// Both kernels of attention against the reference implementation in double, and their promise: a
// row's bits are its own, whatever rows are beside it and wherever its keys are stored.
#include "model/kernels/cuda/attention.hpp"

#include <numeric>

#include <doctest/doctest.h>

#include "tests/unit/cuda/attention_fixture.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline::cuda {
namespace {

using namespace test;

// Float sums of up to 300 terms; nothing is rounded that the reference does not have rounded too.
// What these tests see is 1.3e-6.
constexpr double kPlainTolerance = 1e-5;
// bf16 has 8 bits: each number of a query is off by up to 2^-9 of itself, a score (the root of
// head_dim of them) by some 2^-9 of a typical score, 1.5 here, and its weight by as much; a
// weight's own rounding adds up to 2^-9. What these tests see is 5e-3.
constexpr double kMmaTolerance = 1e-2;

double tolerance(AttentionKernel kernel) {
    return kernel == AttentionKernel::Plain ? kPlainTolerance : kMmaTolerance;
}

/// Slots 0 .. count-1 of a text whose key at position p has the number `text` * 1000 + p.
std::vector<KvSlot> put_text(Cache& cache, int count, unsigned text, KvSlot first = 0) {
    std::vector<KvSlot> slots(size_of(count));
    std::iota(slots.begin(), slots.end(), first);
    for (int p = 0; p < count; ++p)
        cache.put(slots[size_of(p)], text * 1000 + static_cast<unsigned>(p));
    return slots;
}

TestRow row_to(const std::vector<KvSlot>& slots, int keys, unsigned query) {
    return {{slots.begin(), slots.begin() + keys}, 0, query};
}

/// Trunk, then a tree of seven rows: children and grandchildren in odd slots far from home.
std::vector<TestRow> put_tree(Cache& cache, const std::vector<KvSlot>& trunk, KvSlot first) {
    const std::vector<std::vector<int>> paths = {{0}, {1}, {2}, {0, 3}, {0, 4}, {1, 5}, {0, 3, 6}};
    const auto slot_of = [first](int node) { return first + 3 * (6 - node) + 1; };
    for (int node = 0; node < 7; ++node)
        cache.put(slot_of(node), 900'000U + static_cast<unsigned>(node));
    std::vector<TestRow> rows;
    for (std::size_t r = 0; r < paths.size(); ++r) {
        TestRow row{trunk, static_cast<int>(paths[r].size()), 70 + static_cast<unsigned>(r)};
        for (const int node : paths[r]) row.slots.push_back(slot_of(node));
        rows.push_back(row);
    }
    return rows;
}

TEST_CASE("both kernels agree with the reference in double for every context and group") {
    for (const AttentionKernel kernel : {AttentionKernel::Plain, AttentionKernel::Mma}) {
        for (const int group : {1, 3, 4, 16}) {
            Cache cache{{2 * group, 2, 64, CacheType::BF16}, 10};
            const std::vector<KvSlot> slots = put_text(cache, 300, 1);
            for (const int keys : {1, 31, 32, 33, 128, 129, 300}) {
                const std::vector<TestRow> rows = {row_to(slots, keys, 5)};
                CAPTURE(static_cast<int>(kernel));
                CAPTURE(group);
                CAPTURE(keys);
                CHECK(error_of_rows(cache, rows, attend(cache, rows, {.kernel = kernel})) <
                      tolerance(kernel));
            }
        }
    }
}

TEST_CASE("the plain kernel takes every type of cache and every head") {
    for (const CacheType type : {CacheType::F32, CacheType::F16, CacheType::BF16}) {
        for (const int head_dim : {1, 20, 64, 256}) {
            Cache cache{{6, 2, head_dim, type}, 8};
            const std::vector<KvSlot> slots = put_text(cache, 200, 2);
            const std::vector<TestRow> rows = {row_to(slots, 40, 1), row_to(slots, 200, 2)};
            CAPTURE(head_dim);
            CHECK(error_of_rows(cache, rows,
                                attend(cache, rows, {.kernel = AttentionKernel::Plain})) <
                  // One dimension may sum to next to nothing, and that is what errors are part of.
                  (head_dim == 1 ? 10 : 1) * kPlainTolerance);
        }
    }
}

TEST_CASE("the tensor-core kernel takes every head of a multiple of 16") {
    for (const int head_dim : {16, 48, 64, 80, 128, 192, 256}) {
        Cache cache{{6, 2, head_dim, CacheType::BF16}, 8};
        const std::vector<KvSlot> slots = put_text(cache, 200, 2);
        for (const int count : {1, 4, 9}) {  // one, two and four tiles of queries
            std::vector<TestRow> rows;
            for (int r = 0; r < count; ++r)
                rows.push_back(row_to(slots, 200 - r, static_cast<unsigned>(r)));
            CAPTURE(head_dim);
            CAPTURE(count);
            CHECK(error_of_rows(cache, rows, attend(cache, rows, {})) < kMmaTolerance);
        }
    }
}

TEST_CASE("the memory of other devices gets the same results, with one split and with several") {
    Cache cache{{6, 2, 48, CacheType::BF16}, 10};
    const std::vector<KvSlot> slots = put_text(cache, 300, 2);
    for (const AttentionKernel kernel : {AttentionKernel::Mma, AttentionKernel::Plain}) {
        for (const bool wide : {true, false}) {
            for (const int keys : {70, 300}) {
                const std::vector<TestRow> rows = {row_to(slots, keys, 1), row_to(slots, 60, 2)};
                const std::vector<float> own =
                    attend(cache, rows, {.kernel = kernel, .wide = wide});
                for (const int others : {1, 3, kOthersMax})
                    CHECK(same_bits(
                        attend(cache, rows, {.kernel = kernel, .wide = wide, .others = others}),
                        own));
            }
        }
    }
}

TEST_CASE("both kernels agree with the reference on chains, chunks of prefill and trees") {
    Cache cache{{6, 2, 64, CacheType::BF16}, 16};
    const std::vector<KvSlot> slots = put_text(cache, 300, 3);
    std::vector<TestRow> rows;
    SUBCASE("a chain") {
        for (int keys = 290; keys <= 300; ++keys)
            rows.push_back(row_to(slots, keys, static_cast<unsigned>(keys)));
    }
    SUBCASE("a chunk of prefill across the border of a split") {
        for (int keys = 115; keys <= 145; ++keys)
            rows.push_back(row_to(slots, keys, static_cast<unsigned>(keys)));
    }
    SUBCASE("a tree across the border of a split") {
        rows = put_tree(cache, {slots.begin(), slots.begin() + 127}, 400);
    }
    SUBCASE("a tree and another request") {
        rows = put_tree(cache, {slots.begin(), slots.begin() + 30}, 400);
        rows.push_back(row_to(slots, 299, 1));
    }
    for (const AttentionKernel kernel : {AttentionKernel::Plain, AttentionKernel::Mma}) {
        CHECK(error_of_rows(cache, rows, attend(cache, rows, {.kernel = kernel})) <
              tolerance(kernel));
    }
}

TEST_CASE("a row has the same bits alone, among eight and among forty rows") {
    for (const AttentionKernel kernel : {AttentionKernel::Plain, AttentionKernel::Mma}) {
        Cache cache{{6, 2, 64, CacheType::BF16}, 20};
        const std::vector<KvSlot> slots = put_text(cache, 170, 4);
        const std::vector<KvSlot> other = put_text(cache, 90, 5, 320);
        std::vector<TestRow> batch;
        for (int keys = 112; keys < 145; ++keys)
            batch.push_back(row_to(slots, keys, static_cast<unsigned>(keys)));
        for (TestRow& row : put_tree(cache, other, 520)) batch.push_back(std::move(row));
        REQUIRE(batch.size() == 40);
        const Shape& shape = cache.shape();
        const std::vector<float> all = attend(cache, batch, {.kernel = kernel});
        for (const std::size_t first : {std::size_t{0}, std::size_t{12}, std::size_t{32}}) {
            const std::vector<TestRow> eight(
                batch.begin() + static_cast<std::ptrdiff_t>(first),
                batch.begin() + static_cast<std::ptrdiff_t>(first) + 8);
            const std::vector<float> few = attend(cache, eight, {.kernel = kernel, .blocks = 3});
            for (int r = 0; r < 8; ++r) {
                const int row = static_cast<int>(first) + r;
                CAPTURE(row);
                CHECK(same_bits(of_row(shape, few, r), of_row(shape, all, row)));
                CHECK(same_bits(attend(cache, {batch[size_of(row)]}, {.kernel = kernel}),
                                of_row(shape, all, row)));
            }
        }
    }
}

TEST_CASE("where keys are stored changes no bit") {
    for (const AttentionKernel kernel : {AttentionKernel::Plain, AttentionKernel::Mma}) {
        Cache cache{{6, 2, 64, CacheType::BF16}, 64};
        const std::vector<KvSlot> home = put_text(cache, 300, 6);
        std::vector<KvSlot> scattered(300);
        for (int p = 0; p < 300; ++p) {
            // 7 and 1024 have no common factor: every slot at most once.
            scattered[size_of(p)] = 512 + 7 * p % 1024;
            cache.put(scattered[size_of(p)], cache.id_at(home[size_of(p)]));
        }
        for (const int keys : {1, 33, 129, 300}) {
            CAPTURE(keys);
            CHECK(same_bits(attend(cache, {row_to(home, keys, 9)}, {.kernel = kernel}),
                            attend(cache, {row_to(scattered, keys, 9)}, {.kernel = kernel})));
        }
    }
}

TEST_CASE("the order of threads, the number of blocks and the size of units change no bit") {
    Cache cache{{8, 2, 80, CacheType::BF16}, 16};
    const std::vector<KvSlot> slots = put_text(cache, 200, 7);
    std::vector<TestRow> rows = put_tree(cache, {slots.begin(), slots.begin() + 127}, 300);
    for (int keys = 190; keys <= 200; ++keys)
        rows.push_back(row_to(slots, keys, static_cast<unsigned>(keys)));
    for (const AttentionKernel kernel : {AttentionKernel::Plain, AttentionKernel::Mma}) {
        const std::vector<float> usual = attend(cache, rows, {.kernel = kernel});
        for (const emulated::Order& order : all_orders()) {
            const OrderScope scope{order};
            CHECK(same_bits(usual, attend(cache, rows, {.kernel = kernel})));
            CHECK(same_bits(usual, attend(cache, rows, {.kernel = kernel, .blocks = 1})));
        }
        CHECK(same_bits(usual, attend(cache, rows, {.kernel = kernel, .blocks = 200})));
        for (const int unit_rows : {1, 2, 3, 5})
            CHECK(
                same_bits(usual, attend(cache, rows, {.kernel = kernel, .unit_rows = unit_rows})));
    }
}

TEST_CASE("attention planned for the rows of a batch has the bits of a plan for eight rows") {
    for (const int group : {1, 3, 4, 16}) {
        Cache cache{{2 * group, 2, 64, CacheType::BF16}, 12};
        std::vector<KvSlot> slots(300);
        std::iota(slots.begin(), slots.end(), 0);
        for (const KvSlot slot : slots) cache.put(slot, static_cast<unsigned>(slot));
        for (const int rows : {1, 2, 3, 4, 5, 8}) {
            CAPTURE(group);
            CAPTURE(rows);
            std::vector<TestRow> batch;
            for (int r = 0; r < rows; ++r)
                batch.push_back(
                    {{slots.begin(), slots.begin() + 260 + r}, 0, static_cast<unsigned>(r)});
            How how;
            how.unit_rows = attention_unit_rows(8, group);
            const std::vector<float> base = attend(cache, batch, how);
            how.unit_rows = attention_unit_rows(rows, group);
            CHECK(same_bits(attend(cache, batch, how), base));
        }
    }
    // What it is for: decoding with four queries a KV head takes a smaller kernel.
    CHECK(attention_tiles(attention_unit_rows(8, 4), 4) == 4);
    CHECK(attention_tiles(attention_unit_rows(1, 4), 4) == 1);
    CHECK(attention_tiles(attention_unit_rows(3, 4), 4) == 2);
}

TEST_CASE("a result in bf16 is the wide one, rounded") {
    Cache cache{{4, 2, 64, CacheType::BF16}, 8};
    const std::vector<KvSlot> slots = put_text(cache, 200, 8);
    const std::vector<TestRow> rows = {row_to(slots, 20, 1), row_to(slots, 200, 2)};
    for (const AttentionKernel kernel : {AttentionKernel::Plain, AttentionKernel::Mma}) {
        std::vector<float> wide = attend(cache, rows, {.kernel = kernel});
        for (float& number : wide) number = bfloat_to_float(float_to_bfloat(number));
        CHECK(same_bits(wide, attend(cache, rows, {.kernel = kernel, .wide = false})));
    }
}

TEST_CASE("a row that sees one value alone gets that value") {
    for (const AttentionKernel kernel : {AttentionKernel::Plain, AttentionKernel::Mma}) {
        Cache cache{{2, 2, 64, CacheType::BF16}, 2};
        cache.put(33, 77);
        CHECK(
            same_bits(attend(cache, {{{33}, 0, 1}}, {.kernel = kernel}), cache.numbers_of(77, 1)));
    }
}

TEST_CASE("one recording serves other rows and other contexts") {
    Cache cache{{6, 2, 64, CacheType::BF16}, 16};
    const Shape& shape = cache.shape();
    const std::vector<KvSlot> slots = put_text(cache, 300, 9);
    constexpr int kRows = 4;
    constexpr int kSplits = kRows * attention_splits(300);
    const OnDevice<std::int32_t> words{std::vector<std::int32_t>(
        static_cast<std::size_t>(attention_plan_words_max(kRows, kSplits)))};
    const OnDevice<float> queries{std::vector<float>(size_of(kRows * shape.q_numbers()))};
    const OnDevice<std::byte> pages{cache.bytes()};
    const OnDevice<float> partials{std::vector<float>(
        size_of(kSplits) * size_of(shape.heads * attention_partial_floats(shape.head_dim)))};
    const OnDevice<float> out{std::vector<float>(size_of(kRows * shape.q_numbers()))};
    const OnDevice<std::int32_t> count{std::vector<std::int32_t>{kRows}};
    AttentionArgs args;
    args.plan = words.data();
    args.rows = count.data();
    args.q = queries.data();
    args.q_stride = args.out_stride = shape.q_numbers();
    args.heads = shape.heads;
    args.kv_heads = shape.kv_heads;
    args.head_dim = shape.head_dim;
    args.cache = pages.data();
    args.layers = kLayers;
    args.layer = kLayer;
    args.partials = partials.data();
    args.out = out.data();
    args.wide = true;
    const int unit_rows = attention_unit_rows(kRows, shape.heads / shape.kv_heads);
    Stream stream;
    const Graph graph = stream.record([&] {
        launch_attention(stream, args, {AttentionKernel::Mma, unit_rows, 5, false});
    });
    const std::vector<std::vector<TestRow>> batches = {
        {row_to(slots, 300, 1)},
        {row_to(slots, 1, 2), row_to(slots, 140, 3)},
        {row_to(slots, 9, 4), row_to(slots, 10, 5), row_to(slots, 11, 6), row_to(slots, 290, 7)}};
    for (const std::vector<TestRow>& batch : batches) {
        AttentionPlan plan;
        plan.build(rows_of(batch), unit_rows);
        std::vector<float> q;
        for (const TestRow& row : batch) {
            const std::vector<float> query = query_of(shape, row.query);
            q.insert(q.end(), query.begin(), query.end());
        }
        stream.to_device(words.data(), plan.words().data(), plan.words().size_bytes());
        stream.to_device(queries.data(), q.data(), q.size() * sizeof(float));
        graph.launch(stream);
        stream.finish();
        std::vector<float> got = out.take();
        got.resize(q.size());
        CHECK(same_bits(got, attend(cache, batch, {})));
    }
}

TEST_CASE("a batch that was stopped has its attention left out, in every order of threads") {
    for (const AttentionKernel kernel : {AttentionKernel::Plain, AttentionKernel::Mma}) {
        Cache cache{{4, 2, 64, CacheType::BF16}, 10};
        const std::vector<KvSlot> slots = put_text(cache, 300, 1);
        const std::vector<TestRow> rows = {row_to(slots, 12, 5), row_to(slots, 300, 6)};
        for (const emulated::Order order : all_orders()) {
            const OrderScope scope{order};
            const std::vector<float> got = attend(cache, rows, {.kernel = kernel, .stopped = true});
            CHECK(std::all_of(got.begin(), got.end(), [](float x) { return x == 0.0f; }));
        }
    }
}

TEST_CASE("what no kernel can compute is refused") {
    Stream stream;
    AttentionArgs args;
    args.heads = 4;
    args.kv_heads = 2;
    args.head_dim = 64;
    AttentionLaunch how;
    const auto error = [&] { return error_of([&] { launch_attention(stream, args, how); }); };
    args.head_dim = 257;
    CHECK(contains(error(), "heads"));
    args.head_dim = 40;
    CHECK(contains(error(), "tensor-core"));
    args.head_dim = 64;
    args.type = CacheType::F16;
    CHECK(contains(error(), "tensor-core"));
    args.type = CacheType::BF16;
    how.unit_rows = 17;
    CHECK(contains(error(), "tensor-core"));
    args.kv_heads = 3;
    CHECK(contains(error(), "heads"));
}

}  // namespace
}  // namespace paceline::cuda
