// The row kernels: equal bits on all instruction sets, and equal to the scalar definitions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "model/sampling/fixed_math.hpp"
#include "model/sampling/sampling.hpp"
#include "tests/unit/sampling/gumbel_noise.hpp"

using namespace paceline;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<const RowKernels*> all_kernels() {
    std::vector<const RowKernels*> all;
    for (const RowIsa isa : {RowIsa::Baseline, RowIsa::Avx2, RowIsa::Avx512}) {
        if (const RowKernels* kernels = row_kernels_for(isa)) all.push_back(kernels);
    }
    return all;
}

std::vector<float> random_row(int vocab, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 4.0f);
    std::vector<float> row(static_cast<std::size_t>(vocab));
    for (float& logit : row) {
        logit = normal(random);
        if (random() % 97 == 0) logit = -kInfinity;
        if (random() % 89 == 0) logit = std::numeric_limits<float>::quiet_NaN();
        if (random() % 83 == 0) logit = -0.0f;
    }
    row[random() % row.size()] = 9.0f;
    return row;
}

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

struct RowResults {
    float top = 0.0f;
    std::vector<float> group_max;
    std::vector<float> race;
    std::vector<float> bound;
    std::vector<std::uint32_t> weights;
    std::uint64_t total = 0;
    Mass mass{};
    std::vector<std::int32_t> collected;
    Drawn drawn{};
};

RowResults run(const RowKernels& kernels, const std::vector<float>& row, std::uint32_t position) {
    const int vocab = static_cast<int>(row.size());
    const auto groups = static_cast<std::size_t>((vocab + 255) / 256 * 16);
    RowResults r;
    r.group_max.assign(groups, 0.0f);
    r.race.assign(groups, 0.0f);
    r.bound.assign(groups, 0.0f);
    r.weights.assign(row.size(), 0);
    r.collected.assign(row.size(), 0);
    r.top = kernels.fold(row.data(), vocab, r.group_max.data());
    const float inverse = 1.0f / 0.8f;
    r.total = kernels.weigh(row.data(), vocab, r.top, inverse, r.weights.data());
    r.mass = kernels.mass_from(row.data(), r.weights.data(), vocab, 0.5f);
    r.collected.resize(static_cast<std::size_t>(
        kernels.collect(row.data(), vocab, 0.5f, 6.0f, r.collected.data())));
    r.drawn = kernels.draw({.logits = row.data(),
                            .vocab = vocab,
                            .group_max = r.group_max.data(),
                            .max_logit = r.top,
                            .inverse_temperature = inverse,
                            .z_min = -20.0f,
                            .logit_min = -4.0f,
                            .last_id = 40000,
                            .seed = 0x123456789abcdefULL,
                            .position = position,
                            .race = r.race.data(),
                            .bound = r.bound.data()});
    return r;
}

}  // namespace

TEST_CASE("the row kernels give equal bits on all instruction sets") {
    for (const int vocab : {1, 3, 15, 16, 17, 255, 256, 257, 1000, 1024, 4099, 49152}) {
        for (std::uint32_t seed = 0; seed < 8; ++seed) {
            const std::vector<float> row = random_row(vocab, seed);
            const RowResults base = run(*row_kernels_for(RowIsa::Baseline), row, seed);
            for (const RowKernels* kernels : all_kernels()) {
                CAPTURE(kernels->name);
                CAPTURE(vocab);
                const RowResults other = run(*kernels, row, seed);
                CHECK(same_bytes(base.race, other.race));
                CHECK(same_bytes(base.bound, other.bound));
                CHECK(same_bytes(base.weights, other.weights));
                CHECK(base.group_max == other.group_max);  // -0 and 0 may stand for each other
                CHECK(base.collected == other.collected);
                CHECK(base.top == other.top);
                CHECK(base.total == other.total);
                CHECK(base.mass.weight == other.mass.weight);
                CHECK(base.mass.count == other.mass.count);
                CHECK(base.drawn.token == other.drawn.token);
                CHECK(std::memcmp(&base.drawn.score, &other.drawn.score, sizeof(float)) == 0);
            }
        }
    }
}

TEST_CASE("a kernel's weights, masses and collections are those of the scalar definitions") {
    const std::vector<float> row = random_row(5003, 4);
    for (const RowKernels* kernels : all_kernels()) {
        CAPTURE(kernels->name);
        const RowResults r = run(*kernels, row, 1);
        std::uint64_t total = 0;
        Mass mass{};
        std::vector<std::int32_t> collected;
        for (std::size_t t = 0; t < row.size(); ++t) {
            const std::uint32_t weight = weight_of((row[t] - r.top) * (1.0f / 0.8f));
            CHECK(r.weights[t] == weight);
            total += weight;
            if (row[t] >= 0.5f) {
                mass.weight += weight;
                ++mass.count;
            }
            if (row[t] >= 0.5f && row[t] < 6.0f) collected.push_back(static_cast<std::int32_t>(t));
        }
        CHECK(r.total == total);
        CHECK(r.mass.weight == mass.weight);
        CHECK(r.mass.count == mass.count);
        CHECK(r.collected == collected);
    }
}

TEST_CASE("no token scores above the bound of its group, and the winner's score is exact") {
    const std::vector<float> row = random_row(2049, 5);
    for (const RowKernels* kernels : all_kernels()) {
        for (std::uint32_t position = 0; position < 50; ++position) {
            const RowResults r = run(*kernels, row, position);
            float best = -kInfinity;
            for (std::size_t t = 0; t < row.size(); ++t) {
                const float z = (row[t] - r.top) * (1.0f / 0.8f);
                if (!(z >= -20.0f) || !(row[t] >= -4.0f)) continue;
                const float score =
                    z + gumbel(0x123456789abcdefULL, static_cast<Position>(position),
                               static_cast<TokenId>(t));
                CHECK(score <= r.bound[16 * (t / 256) + t % 16]);
                best = std::max(best, score);
            }
            CHECK(r.drawn.score == best);
        }
    }
}

TEST_CASE("rivals and soften are the scalar definitions, with equal bits on all instruction sets") {
    for (const int vocab : {1, 17, 256, 700, 4099}) {
        const std::vector<float> row = random_row(vocab, 9);
        std::vector<float> first_values;
        for (const RowKernels* kernels : all_kernels()) {
            CAPTURE(kernels->name);
            CAPTURE(vocab);
            const auto groups = static_cast<std::size_t>((vocab + 255) / 256 * 16);
            std::vector<float> group_max(groups);
            std::vector<float> race(groups);
            std::vector<float> bound(groups);
            const DrawArgs args{.logits = row.data(),
                                .vocab = vocab,
                                .group_max = group_max.data(),
                                .max_logit = kernels->fold(row.data(), vocab, group_max.data()),
                                .inverse_temperature = 1.25f,
                                .z_min = -15.0f,
                                .logit_min = -2.0f,
                                .last_id = 40000,
                                .seed = 77,
                                .position = 3,
                                .race = race.data(),
                                .bound = bound.data()};
            const float low = kernels->draw(args).score - 4.0f;
            std::vector<std::int32_t> tokens(row.size());
            std::vector<float> scores(row.size());
            tokens.resize(
                static_cast<std::size_t>(kernels->rivals(args, low, tokens.data(), scores.data())));
            std::vector<float> values(row.size(), -1.0f);
            const double sum = kernels->soften(args, values.data());
            double plain_sum = 0.0;
            std::size_t found = 0;
            for (std::int32_t t = 0; t < vocab; ++t) {
                const float logit = row[static_cast<std::size_t>(t)];
                const float z = (logit - args.max_logit) * args.inverse_temperature;
                const bool kept = z >= args.z_min && logit >= args.logit_min;
                const float value = kept ? fixed_exp(z) : 0.0f;
                plain_sum += static_cast<double>(value);
                CHECK(values[static_cast<std::size_t>(t)] == value);
                const float score = z + gumbel(args.seed, 3, t);
                const auto at = std::find(tokens.begin(), tokens.end(), t);
                CHECK((at != tokens.end()) == (kept && score >= low));
                if (at == tokens.end()) continue;
                ++found;
                CHECK(scores[static_cast<std::size_t>(at - tokens.begin())] == score);
            }
            CHECK(found == tokens.size());
            CHECK(sum == doctest::Approx(plain_sum).epsilon(1e-6));
            values.push_back(static_cast<float>(sum));
            if (first_values.empty()) first_values = values;
            CHECK(same_bytes(first_values, values));
        }
    }
}

TEST_CASE("the fixed exponential is within its error of the true one") {
    for (float z = 0.0f; z > -85.9f; z -= 0.00371f) {
        const double want = std::exp(static_cast<double>(z));
        CHECK(std::fabs(static_cast<double>(fixed_exp(z)) - want) < 5e-6 * want);
    }
    CHECK(fixed_exp(0.0f) == 1.0f);
    CHECK(fixed_exp(-86.0f) == 0.0f);
    CHECK(fixed_exp(-std::numeric_limits<float>::infinity()) == 0.0f);
    CHECK(fixed_exp(std::numeric_limits<float>::quiet_NaN()) == 0.0f);
}
