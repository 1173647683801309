#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "model/kernels/cpu/kernel_table.hpp"
#include "model/kv_layout.hpp"
#include "tests/unit/kernels/kernel_fixture.hpp"

namespace paceline {
namespace {

using testing::random_floats;

constexpr KvType kKvTypes[] = {KvType::F32, KvType::F16, KvType::BF16};

/// One split's worth of pages with random keys and values, stored through the kernel.
struct Pages {
    static constexpr int kPages = kSplit / kKvPageSlots;
    std::vector<std::uint8_t> bytes;
    std::vector<const std::uint8_t*> keys, values;

    Pages(const KernelTable& k,
          KvType type,
          int head_dim,
          std::span<const float> key,
          std::span<const float> value) {
        const std::size_t half =
            static_cast<std::size_t>(head_dim) * kKvPageSlots * (type == KvType::F32 ? 4 : 2);
        bytes.resize(2 * half * kPages);
        for (int page = 0; page < kPages; ++page) {
            const KvPageView view{bytes.data() + 2 * half * static_cast<std::size_t>(page),
                                  bytes.data() + 2 * half * static_cast<std::size_t>(page) + half};
            keys.push_back(view.keys);
            values.push_back(view.values);
            for (int lane = 0; lane < kKvPageSlots; ++lane) {
                const int p = page * kKvPageSlots + lane;
                k.store_kv(type, key.data() + p * head_dim, value.data() + p * head_dim, head_dim,
                           view, lane);
            }
        }
    }
};

float rounded(KvType type, float x) {
    switch (type) {
        case KvType::F32:
            return x;
        case KvType::F16:
            return half_to_float(float_to_half(x));
        case KvType::BF16:
            return bfloat_to_float(float_to_bfloat(x));
    }
    return x;
}

/// Attention of one query in double, over keys and values rounded as the cache rounds them.
std::vector<double> plain(KvType type,
                          int head_dim,
                          std::span<const float> q,
                          std::span<const float> key,
                          std::span<const float> value,
                          int count) {
    std::vector<double> scores(static_cast<std::size_t>(count));
    double best = -std::numeric_limits<double>::infinity();
    for (int p = 0; p < count; ++p) {
        double& s = scores[static_cast<std::size_t>(p)];
        for (int d = 0; d < head_dim; ++d)
            s += static_cast<double>(q[static_cast<std::size_t>(d)]) *
                 rounded(type, key[static_cast<std::size_t>(p * head_dim + d)]);
        best = std::max(best, s);
    }
    std::vector<double> out(static_cast<std::size_t>(head_dim));
    double total = 0;
    for (int p = 0; p < count; ++p) {
        const double w = std::exp(scores[static_cast<std::size_t>(p)] - best);
        total += w;
        for (int d = 0; d < head_dim; ++d)
            out[static_cast<std::size_t>(d)] +=
                w * rounded(type, value[static_cast<std::size_t>(p * head_dim + d)]);
    }
    for (double& x : out) x /= total;
    return out;
}

struct Attended {
    std::vector<float> raw;  // [queries][head_dim + 2]
    std::vector<float> finished;
};

Attended attend(const KernelTable& k,
                KvType type,
                int head_dim,
                const Pages& pages,
                std::span<const float> q,
                std::span<const int> counts) {
    const int queries = static_cast<int>(counts.size());
    Attended result{std::vector<float>(static_cast<std::size_t>(queries * (head_dim + 2))),
                    std::vector<float>(static_cast<std::size_t>(queries * head_dim))};
    std::vector<const float*> q_rows;
    std::vector<float*> out;
    for (int i = 0; i < queries; ++i) {
        q_rows.push_back(q.data() + i * head_dim);
        out.push_back(result.raw.data() + i * (head_dim + 2));
    }
    std::vector<float> scores(static_cast<std::size_t>(queries) * kSplit);
    k.attend({type, head_dim, queries, q_rows.data(), counts.data(), pages.keys.data(),
              pages.values.data(), scores.data(), out.data()});
    for (int i = 0; i < queries; ++i)
        k.finish(out[static_cast<std::size_t>(i)], head_dim, result.finished.data() + i * head_dim);
    return result;
}

TEST_CASE("attention agrees with the reference implementation for every cache type and head size") {
    std::mt19937 rng{31};
    for (const Isa isa : testing::runnable_isas()) {
        const KernelTable& k = kernels(isa);
        for (const KvType type : kKvTypes) {
            for (const int head_dim : {8, 16, 20, 64, 128}) {
                CAPTURE(name(isa));
                CAPTURE(head_dim);
                const std::vector<float> key =
                    random_floats(rng, static_cast<std::size_t>(kSplit * head_dim));
                const std::vector<float> value =
                    random_floats(rng, static_cast<std::size_t>(kSplit * head_dim));
                const Pages pages{k, type, head_dim, key, value};
                const std::vector<int> counts = {1, 31, 32, 33, 100, 255, 256, 2, 77};
                const std::vector<float> q =
                    random_floats(rng, counts.size() * static_cast<std::size_t>(head_dim), 0.5f);
                const Attended got = attend(k, type, head_dim, pages, q, counts);
                for (std::size_t i = 0; i < counts.size(); ++i) {
                    const auto row = std::span(q).subspan(i * static_cast<std::size_t>(head_dim),
                                                          static_cast<std::size_t>(head_dim));
                    const std::vector<double> want =
                        plain(type, head_dim, row, key, value, counts[i]);
                    for (int d = 0; d < head_dim; ++d) {
                        CHECK(std::fabs(got.finished[i * static_cast<std::size_t>(head_dim) +
                                                     static_cast<std::size_t>(d)] -
                                        want[static_cast<std::size_t>(d)]) < 2e-5);
                    }
                }
            }
        }
    }
}

TEST_CASE("a query's attention has the same bits alone and among others that see more or less") {
    std::mt19937 rng{32};
    for (const Isa isa : testing::runnable_isas()) {
        const KernelTable& k = kernels(isa);
        for (const KvType type : kKvTypes) {
            const int head_dim = 24;
            const std::vector<float> key =
                random_floats(rng, static_cast<std::size_t>(kSplit * head_dim));
            const std::vector<float> value =
                random_floats(rng, static_cast<std::size_t>(kSplit * head_dim));
            const Pages pages{k, type, head_dim, key, value};
            std::vector<int> counts;
            for (int i = 0; i < kAttentionQueriesMax; ++i)
                counts.push_back(static_cast<int>(1 + rng() % kSplit));
            const std::vector<float> q =
                random_floats(rng, counts.size() * static_cast<std::size_t>(head_dim));
            const Attended together = attend(k, type, head_dim, pages, q, counts);
            for (std::size_t i = 0; i < counts.size(); ++i) {
                const Attended alone =
                    attend(k, type, head_dim, pages, std::span(q).subspan(i * 24, 24),
                           std::span(counts).subspan(i, 1));
                CHECK(testing::equal_bits(alone.raw, std::span(together.raw).subspan(i * 26, 26)));
            }
        }
    }
}

TEST_CASE("splits merged in order give what one softmax over all of them gives") {
    std::mt19937 rng{33};
    const int head_dim = 16;
    const int splits = 3;
    for (const Isa isa : testing::runnable_isas()) {
        const KernelTable& k = kernels(isa);
        const std::vector<float> key =
            random_floats(rng, static_cast<std::size_t>(splits * kSplit * head_dim));
        const std::vector<float> value = random_floats(rng, key.size());
        const std::vector<float> q = random_floats(rng, head_dim, 2.0f);
        std::vector<float> running(head_dim + 2, 0.0f);
        running[head_dim] = -std::numeric_limits<float>::infinity();
        const int last_count = 50;
        for (int s = 0; s < splits; ++s) {
            const auto from = static_cast<std::size_t>(s * kSplit * head_dim);
            const auto size = static_cast<std::size_t>(kSplit * head_dim);
            const Pages pages{k, KvType::F32, head_dim, std::span(key).subspan(from, size),
                              std::span(value).subspan(from, size)};
            const int count[] = {s + 1 == splits ? last_count : kSplit};
            k.merge(running.data(), attend(k, KvType::F32, head_dim, pages, q, count).raw.data(),
                    head_dim);
        }
        std::vector<float> out(head_dim);
        k.finish(running.data(), head_dim, out.data());
        const std::vector<double> want =
            plain(KvType::F32, head_dim, q, key, value, (splits - 1) * kSplit + last_count);
        for (int d = 0; d < head_dim; ++d)
            CHECK(std::fabs(out[static_cast<std::size_t>(d)] - want[static_cast<std::size_t>(d)]) <
                  1e-5);
    }
}

}  // namespace
}  // namespace paceline
