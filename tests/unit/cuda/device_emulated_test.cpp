// The emulated device does what a device does: what its threads do together has the right results.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline::cuda {
namespace {

struct IntArgs {
    int* out;
};

void number_threads(IntArgs args) {
    const int block = block_y() * grid_x() + block_x();
    const int at = block * block_size() + thread_index();
    args.out[at] = at * 100 + warp() * 10 + lane() % 10;
}

void exchange_lanes(IntArgs args) {
    int* mine = args.out + lane() * 4;
    mine[0] = shuffle(lane() * 3, 5);
    mine[1] = shuffle_xor(lane(), 8);
    mine[2] = static_cast<int>(shuffle(static_cast<float>(lane()), 31 - lane()));
    mine[3] = static_cast<int>(ballot(lane() % 2 == 1) == 0xAAAA'AAAAU);
}

struct SumArgs {
    const float* in;
    float* out;
    int barriers;  // 0: forgets them
};

/// Sums a block's values through shared memory, in an order of its own.
void sum_of_block(SumArgs args) {
    auto* shared = shared_memory<float>(0);
    shared[thread_index()] = args.in[thread_index()];
    if (args.barriers != 0) sync_block();
    float sum = 0;
    for (int i = 0; i < block_size(); ++i) {
        sum += shared[(thread_index() + i) % block_size()];
    }
    args.out[thread_index()] = sum;
}

struct TileArgs {
    const std::uint16_t* a;  // [16][16]
    const std::uint16_t* b;  // [16][8]
    float* c;                // [16][8]
};

void multiply_tile(TileArgs args) {
    const int g = lane() / 4;
    const int t = lane() % 4 * 2;
    const auto two = [](std::uint16_t low, std::uint16_t high) {
        return std::uint32_t{low} | std::uint32_t{high} << 16U;
    };
    const auto a_at = [&](int row, int k) {
        return two(args.a[row * 16 + k], args.a[row * 16 + k + 1]);
    };
    const auto b_at = [&](int k) { return two(args.b[k * 8 + g], args.b[(k + 1) * 8 + g]); };
    const std::uint32_t a[4] = {a_at(g, t), a_at(g + 8, t), a_at(g, t + 8), a_at(g + 8, t + 8)};
    const std::uint32_t b[2] = {b_at(t), b_at(t + 8)};
    float* upper = args.c + g * 8 + t;
    float* lower = args.c + (g + 8) * 8 + t;
    float c[4] = {upper[0], upper[1], lower[0], lower[1]};
    mma_bf16(c, a, b);
    upper[0] = c[0];
    upper[1] = c[1];
    lower[0] = c[2];
    lower[1] = c[3];
}

struct CopyArgs {
    const float* in;  // four per thread and group
    float* out;
    int groups_open;  // waits for all but so many of two groups
};

void copy_two_groups(CopyArgs args) {
    auto* shared = shared_memory<float>(0);
    const int mine = thread_index() * 4;
    const int second = block_size() * 4 + mine;
    copy_async16(shared + mine, args.in + mine);
    commit_copies();
    copy_async16(shared + second, args.in + second);
    commit_copies();
    if (args.groups_open == 0) wait_copies<0>();
    if (args.groups_open == 1) wait_copies<1>();
    sync_block();
    for (int i = 0; i < 4; ++i) {
        args.out[mine + i] = shared[mine + i];
        args.out[second + i] = shared[second + i];
    }
}

struct BusyArgs {
    int rounds;
    float* out;
};

void many_collectives(BusyArgs args) {
    auto value = static_cast<float>(thread_index());
    for (int round = 0; round < args.rounds; ++round) {
        value = shuffle_xor(value, 1 << round % 5);
        if (round % 16 == 0) sync_block();
    }
    args.out[thread_index()] = value;
}

void read_unwritten(SumArgs args) {
    args.out[lane()] = shared_memory<float>(64)[lane()];
}

TEST_CASE("every thread of every block knows its number") {
    const test::OnDevice<int> out(std::vector<int>(3 * 2 * 64));
    Stream stream;
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope(order);
        launch(stream, {.blocks_x = 3, .blocks_y = 2, .threads = 64}, number_threads, {out.data()});
        const std::vector<int> seen = out.take();
        for (int at = 0; at < static_cast<int>(seen.size()); ++at) {
            const int index = at % 64;
            CHECK(seen[static_cast<std::size_t>(at)] ==
                  at * 100 + index / 32 * 10 + index % 32 % 10);
        }
    }
}

TEST_CASE("shuffles and ballots bring the values of other lanes") {
    const test::OnDevice<int> out(std::vector<int>(32 * 4));
    Stream stream;
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope(order);
        launch(stream, {.threads = 32}, exchange_lanes, {out.data()});
        const std::vector<int> seen = out.take();
        for (int lane = 0; lane < 32; ++lane) {
            const int* mine = seen.data() + lane * 4;
            CHECK(mine[0] == 15);
            CHECK(mine[1] == (lane ^ 8));
            CHECK(mine[2] == 31 - lane);
            CHECK(mine[3] == 1);
        }
    }
}

TEST_CASE("a product of tiles is that of a double loop") {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> a(256);
    std::vector<std::uint16_t> b(128);
    std::vector<float> c(128);
    for (auto& value : a) value = float_to_bf16(normal(random));
    for (auto& value : b) value = float_to_bf16(normal(random));
    for (auto& value : c) value = normal(random);
    const test::OnDevice<std::uint16_t> device_a(a);
    const test::OnDevice<std::uint16_t> device_b(b);
    const test::OnDevice<float> device_c(c);
    Stream stream;
    launch(stream, {.threads = 32}, multiply_tile,
           {device_a.data(), device_b.data(), device_c.data()});
    const std::vector<float> seen = device_c.take();
    for (std::size_t row = 0; row < 16; ++row) {
        for (std::size_t column = 0; column < 8; ++column) {
            float sum = c[row * 8 + column];
            for (std::size_t k = 0; k < 16; ++k) {
                sum =
                    std::fma(bf16_to_float(a[row * 16 + k]), bf16_to_float(b[k * 8 + column]), sum);
            }
            CHECK(seen[row * 8 + column] == sum);
        }
    }
}

TEST_CASE("a kernel with its barrier gives the same in every order, one without does not") {
    constexpr int kThreads = 128;
    std::vector<float> in(kThreads);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    const float sum = kThreads * (kThreads - 1) / 2;
    const test::OnDevice<float> device_in(in);
    const test::OnDevice<float> out(std::vector<float>(kThreads, 0.0F));
    const LaunchShape shape{.threads = kThreads, .shared_bytes = kThreads * sizeof(float)};
    Stream stream;
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope(order);
        launch(stream, shape, sum_of_block, {device_in.data(), out.data(), 1});
        for (const float seen : out.take()) CHECK(seen == sum);
        launch(stream, shape, sum_of_block, {device_in.data(), out.data(), 0});
        const std::vector<float> wrong = out.take();
        CHECK(std::count(wrong.begin(), wrong.end(), sum) == 1);  // of the thread that came last
    }
}

TEST_CASE("unwritten shared memory is NaN, also after a block that wrote it") {
    const test::OnDevice<float> in(std::vector<float>(64, 1.0F));
    const test::OnDevice<float> out(std::vector<float>(64, 0.0F));
    Stream stream;
    launch(stream, {.threads = 64, .shared_bytes = 256}, sum_of_block, {in.data(), out.data(), 1});
    CHECK(out.take()[0] == 64.0F);
    launch(stream, {.threads = 32, .shared_bytes = 256}, read_unwritten,
           {in.data(), out.data(), 1});
    const std::vector<float> seen = out.take();
    for (int lane = 0; lane < 32; ++lane) CHECK(std::isnan(seen[static_cast<std::size_t>(lane)]));
}

TEST_CASE("an asynchronous copy arrives with the wait that covers its group, and no earlier") {
    constexpr int kThreads = 32;
    constexpr std::size_t kGroup = kThreads * 4;
    std::vector<float> in(2 * kGroup);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    const test::OnDevice<float> device_in(in);
    for (const int open : {0, 1, 2}) {
        test::OnDevice<float> out(std::vector<float>(2 * kGroup, 0.0F));
        Stream stream;
        launch(stream, {.threads = kThreads, .shared_bytes = 2 * kGroup * sizeof(float)},
               copy_two_groups, {device_in.data(), out.data(), open});
        const std::vector<float> seen = out.take();
        for (std::size_t i = 0; i < seen.size(); ++i) {
            const bool arrived = i < kGroup ? open < 2 : open < 1;
            CHECK((arrived ? seen[i] == in[i] : std::isnan(seen[i])));
        }
    }
}

TEST_CASE("every half and bf16 value survives a round trip, and ties go to even") {
    int wrong = 0;
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
        const auto narrow = static_cast<std::uint16_t>(bits);
        const float half = half_to_float(narrow);
        const float bf16 = bf16_to_float(narrow);
        if (!std::isnan(half) && float_to_half(half) != narrow) ++wrong;
        if (!std::isnan(bf16) && float_to_bf16(bf16) != narrow) ++wrong;
    }
    CHECK(wrong == 0);
    CHECK(float_to_bf16(float_of(0x3F80'8000U)) == 0x3F80U);
    CHECK(float_to_bf16(float_of(0x3F81'8000U)) == 0x3F82U);
    CHECK(float_to_half(1.0F + 0x1p-11F) == 0x3C00U);
    CHECK(float_to_half(1.0F + 0x3p-11F) == 0x3C02U);
    CHECK(float_to_half(65519.9F) == 0x7BFFU);
    CHECK(float_to_half(65520.0F) == 0x7C00U);
    CHECK(float_to_half(-0x1p-25F) == 0x8000U);
    CHECK(float_to_half(0x3p-25F) == 0x0002U);
    CHECK(half_to_float(0x8001U) == -0x1p-24F);
    CHECK(float_to_bf16(std::numeric_limits<float>::quiet_NaN()) == 0x7FFFU);
    CHECK(two_bf16(1.0F, 2.0F) == 0x4000'3F80U);
}

TEST_CASE("thousands of collective operations of a block follow each other") {
    const test::OnDevice<float> out(std::vector<float>(256, 0.0F));
    Stream stream;
    const auto start = std::chrono::steady_clock::now();
    launch(stream, {.threads = 256}, many_collectives, {4000, out.data()});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    MESSAGE("4000 collectives of 256 threads: " << took.count() * 1e3 << " ms");
    // Each of the five exchanges was done an even number of times.
    const std::vector<float> values = out.take();
    for (std::size_t thread = 0; thread < values.size(); ++thread)
        REQUIRE(values[thread] == static_cast<float>(thread));
}

}  // namespace
}  // namespace paceline::cuda
