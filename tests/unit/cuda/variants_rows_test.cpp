// What stands between products, with early launch and with attention's tiles by rows: the bits of the
// base.
#include <cstring>
#include <numeric>

#include <doctest/doctest.h>

#include "model/kernels/cuda/blas.hpp"
#include "model/kernels/cuda/gemm_blas.hpp"
#include "model/kernels/cuda/rows.hpp"
#include "tests/unit/cuda/attention_fixture.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline::cuda {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr int kRows = 5;
constexpr int kLaunched = 8;
constexpr int kDim = 96;
constexpr int kStride = padded_inputs(kDim);

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Runs `work(early, out)` with early launch off and on; `out` is an array of `size` bytes that it
/// fills. `kernels`: how many kernels of it have the switch.
template <class Work>
void check_early(std::size_t size, unsigned kernels, const Work& work) {
    const auto run = [&](bool early) {
        const OnDevice<std::byte> out{std::vector<std::byte>(size, std::byte{0x11})};
#ifdef PACELINE_EMULATED_DEVICE
        const std::uint64_t before = emulated::early_launches();
        work(early, out.data());
        CHECK(emulated::early_launches() - before == (early ? kernels : 0));
#else
        (void)kernels;
        work(early, out.data());
#endif
        return out.take();
    };
    const std::vector<std::byte> base = run(false);
    CHECK(base != std::vector<std::byte>(size, std::byte{0x11}));
    CHECK(run(true) == base);
}

TEST_CASE("rows are embedded and made ready with equal bits, and the next kernel starts early") {
    const OnDevice<float> hidden{random_floats(kRows * kDim, 1)};
    const OnDevice<float> norm{random_floats(kDim, 2)};
    const OnDevice<std::int32_t> count{{kRows}};
    const OnDevice<std::int32_t> index{{4, 2, 0, 1, 3, 0, 0, 0}};
    const OnDevice<float> squares{std::vector<float>(size_of(kLaunched * tiles_of(kStride)), 3.0f)};
    DeviceMatrix table;
    table.type = WeightType::F32;
    table.values = hidden.data();
    table.outputs = kRows;
    table.inputs = table.stride = kDim;
    Stream stream;
    check_early(kLaunched * kDim * sizeof(float), 1, [&](bool early, std::byte* out) {
        launch_embed(stream,
                     {table, index.data(), count.data(), reinterpret_cast<float*>(out), early},
                     kLaunched);
        stream.finish();
    });
    check_early(kLaunched * kStride * 2, 1, [&](bool early, std::byte* out) {
        const NextInput next{norm.data(), out, squares.data(), kStride, false};
        launch_ready(stream, {hidden.data(), index.data(), count.data(), kDim, next, early},
                     kLaunched);
        stream.finish();
    });
    check_early(kLaunched * sizeof(float), 1, [&](bool early, std::byte* out) {
        const RowNorm squared{squares.data(), tiles_of(kStride), kDim, 1e-5f, nullptr};
        launch_norm_factors(stream, {squared, count.data(), reinterpret_cast<float*>(out), early},
                            kLaunched);
        stream.finish();
    });
}

TEST_CASE("the norm factors in front of a larger product let it start early, with equal bits") {
    constexpr int kMany = kFusedNormRows + 4;
    const OnDevice<std::uint16_t> weights{bf16_of(random_floats(16 * kDim, 3))};
    const OnDevice<std::uint16_t> x{bf16_of(random_floats(size_of(kMany * kStride), 4))};
    const OnDevice<std::int32_t> count{{kMany}};
    const OnDevice<float> squares{std::vector<float>(size_of(kMany * tiles_of(kStride)), 3.0f)};
    const OnDevice<float> factors{std::vector<float>(size_of(kMany))};
    GemmArgs args;
    args.weights.values = weights.data();
    args.weights.outputs = 16;
    args.weights.inputs = args.weights.stride = kDim;
    args.x = x.data();
    args.x_stride = kStride;
    args.rows = count.data();
    args.finish.norm = {squares.data(), tiles_of(kStride), kDim, 1e-5f, factors.data()};
    args.finish.out_stride = 16;
    Stream stream;
    check_early(kMany * 16 * sizeof(float), 2, [&](bool early, std::byte* out) {
        Variants variants;
        variants.early_launch = early;
        args.finish.out = reinterpret_cast<float*>(out);
        launch_gemm(stream, args, {kMany, 1, variants});
        stream.finish();
    });
}

TEST_CASE("rotation leaves equal queries, keys and values, and lets the next kernel start early") {
    constexpr int kHeadDim = 32;
    constexpr int kWidth = 4 * kHeadDim;  // two heads of queries, one of keys, one of values
    const std::vector<float> given = random_floats(kRows * kWidth, 5);
    const std::size_t qkv_bytes = given.size() * sizeof(float);
    const OnDevice<float> angles{std::vector<float>(kRows * kHeadDim, 0.7f)};
    const OnDevice<float> norm{random_floats(kHeadDim, 6)};
    const OnDevice<std::int32_t> positions{{0, 1, 2, 3, 4, 0, 0, 0}};
    const OnDevice<std::int32_t> slots{{7, 0, 31, 12, 5, 0, 0, 0}};
    const OnDevice<std::int32_t> count{{kRows}};
    RotateArgs args;
    args.qkv_stride = kWidth;
    args.heads = 2;
    args.kv_heads = 1;
    args.head_dim = kHeadDim;
    args.pairs = kHeadDim / 2;
    args.q_norm = args.k_norm = norm.data();
    args.epsilon = 1e-5f;
    args.cosines = args.sines = angles.data();
    args.positions = positions.data();
    args.slots = slots.data();
    args.rows = count.data();
    args.layers = 1;
    Stream stream;
    // Queries, then the cache: one page of keys and values.
    check_early(qkv_bytes + 2 * kPageSlots * kHeadDim * 2, 1, [&](bool early, std::byte* out) {
        stream.to_device(out, given.data(), qkv_bytes);
        args.qkv = reinterpret_cast<float*>(out);
        args.cache = out + qkv_bytes;
        args.early_launch = early;
        launch_rotate(stream, args, kLaunched);
        stream.finish();
    });
}

TEST_CASE("the finish after cuBLAS leaves equal bits, and lets the next kernel start early") {
    if (!blas_problem().empty()) {
        MESSAGE("skipped: no cuBLAS: ", blas_problem());
        return;
    }
    const OnDevice<std::byte> workspace{std::vector<std::byte>(kBlasWorkspaceBytes)};
    const OnDevice<std::uint16_t> weights{bf16_of(random_floats(size_of(kDim * kStride), 7))};
    const OnDevice<std::uint16_t> x{bf16_of(random_floats(size_of(kRows * kStride), 8))};
    const OnDevice<float> hidden_source{random_floats(kRows * kDim, 9)};
    const OnDevice<float> scratch{std::vector<float>(size_of(kRows * kDim))};
    const OnDevice<float> norm{random_floats(kDim, 10)};
    const OnDevice<float> squares{std::vector<float>(size_of(kRows * tiles_of(kStride)))};
    const OnDevice<std::int32_t> count{{kRows}};
    const OnDevice<std::int32_t> places{{4, 2, 0, 1, 3}};
    const OnDevice<std::uint16_t> next{std::vector<std::uint16_t>(size_of(kRows * kStride))};
    Stream stream;
    Blas blas{stream, workspace.data()};
    check_early(kRows * kDim * sizeof(float), 1, [&](bool early, std::byte* out) {
        stream.to_device(out, hidden_source.take().data(), kRows * kDim * sizeof(float));
        GemmArgs args;
        args.weights.values = weights.data();
        args.weights.outputs = args.weights.inputs = kDim;
        args.weights.stride = kStride;
        args.x = x.data();
        args.x_stride = kStride;
        args.rows = count.data();
        args.finish.kind = FinishKind::Residual;
        args.finish.out = reinterpret_cast<float*>(out);
        args.finish.out_stride = kDim;
        args.finish.row_index = places.data();
        args.finish.next = {norm.data(), next.data(), squares.data(), kStride, false};
        Variants variants;
        variants.early_launch = early;
        launch_gemm_blas(stream, blas, args, kRows, scratch.data(), variants);
        stream.finish();
    });
}

TEST_CASE("attention planned for the rows of a wave has the bits of a plan for eight rows") {
    for (const int group : {1, 3, 4, 16}) {
        Cache cache{{2 * group, 2, 64, CacheType::BF16}, 12};
        std::vector<KvSlot> slots(300);
        std::iota(slots.begin(), slots.end(), 0);
        for (const KvSlot slot : slots) cache.put(slot, static_cast<unsigned>(slot));
        for (const int rows : {1, 2, 3, 4, 5, 8}) {
            CAPTURE(group);
            CAPTURE(rows);
            std::vector<TestRow> wave;
            for (int r = 0; r < rows; ++r)
                wave.push_back(
                    {{slots.begin(), slots.begin() + 260 + r}, 0, static_cast<unsigned>(r)});
            How how;
            how.unit_rows = attention_unit_rows(8, group);
            const std::vector<float> base = attend(cache, wave, how);
            how.unit_rows = attention_unit_rows(rows, group);
            CHECK(same_bits(attend(cache, wave, how), base));
        }
    }
    // What it is for: decoding with four queries a KV head takes a smaller kernel.
    CHECK(attention_tiles(attention_unit_rows(8, 4), 4) == 4);
    CHECK(attention_tiles(attention_unit_rows(1, 4), 4) == 1);
    CHECK(attention_tiles(attention_unit_rows(3, 4), 4) == 2);
}

}  // namespace
}  // namespace paceline::cuda
