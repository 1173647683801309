// Rows that start, stop and skip at different sub-layers, and what they keep of each.
#include <algorithm>

#include "model/reference/reference_backend.hpp"
#include "tests/unit/cuda/cuda_fixture.hpp"

namespace paceline {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers of this very test

constexpr int kPrefix = 20;

struct Setting {
    const char* fixture;
    Dtype dtype;
    KvType kv;
};
constexpr Setting kSettings[] = {
    {"llama-f32", Dtype::F32, KvType::F32},
    {"qwen3-bf16", Dtype::Auto, KvType::BF16},
    {"llama-q4_1", Dtype::Auto, KvType::F16},
};

/// Continuations of one prefix side by side: no row reads what another one writes.
struct Wave {
    std::vector<KvSlot> slots = home_slots(kPrefix);
    std::vector<KvSlot> own;
    std::vector<std::vector<float>> stacks;
    std::vector<float> hidden;
    std::vector<Row> rows;

    Wave(const ModelConfig& config, int count) {
        for (int i = 0; i < count; ++i) own.push_back(kPrefix + 1 + 3 * i);
        for (int i = 0; i < count; ++i) {
            Row row;
            row.token = 7 + i;
            row.position = kPrefix;
            row.slot = own[static_cast<std::size_t>(i)];
            row.prefix_slots = slots.data();
            row.prefix_count = kPrefix;
            row.path_slots = &own[static_cast<std::size_t>(i)];
            row.path_count = 1;
            row.last = config.sublayers();
            rows.push_back(row);
        }
        for (std::size_t i = 0; i < rows.size() * static_cast<std::size_t>(config.dim); ++i)
            hidden.push_back(0.1f * static_cast<float>(i % 13) - 0.6f);
    }
    void want_stacks(int dim) {
        stacks.resize(rows.size());
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const auto entries = static_cast<std::size_t>(rows[r].last - rows[r].first);
            stacks[r].assign(entries * static_cast<std::size_t>(dim), -77.0f);
            rows[r].stack = stacks[r].data();
        }
    }
    void run(Backend& backend) {
        REQUIRE(backend.run_layers(rows, hidden, nullptr) == RunOutcome::Done);
    }
    [[nodiscard]] std::span<const float> state(std::size_t row, std::size_t dim) const {
        return std::span(hidden).subspan(row * dim, dim);
    }
};

std::unique_ptr<CudaBackend> prefixed(const ModelFile& file, const Setting& setting) {
    std::mt19937 rng{52};
    auto backend = make_cuda(file, {.dtype = setting.dtype, .kv = setting.kv});
    (void)sequence_logits(*backend, random_tokens(rng, file.config().vocab_size, kPrefix), 8);
    return backend;
}

SublayerMask mask_of(std::initializer_list<int> sublayers) {
    SublayerMask mask;
    for (const int sublayer : sublayers) mask.skip(sublayer);
    return mask;
}

/// Rows of every kind: first, last and mask differ, one has nothing to do.
void mix(Wave& wave, int sublayers, std::span<const SublayerMask> masks) {
    for (std::size_t i = 0; i < wave.rows.size(); ++i) {
        const int n = static_cast<int>(i);
        wave.rows[i].first = n % 3;
        wave.rows[i].last = sublayers - n % 2;
        if (i % 4 != 0) wave.rows[i].mask = &masks[i % masks.size()];
    }
    wave.rows[4].first = wave.rows[4].last = 2;
    wave.rows[5].first = wave.rows[5].last = 0;
}

TEST_CASE("rows that start, stop and skip anywhere agree with the reference, states and stacks") {
    const SublayerMask masks[] = {mask_of({1, 2}), mask_of({0}), mask_of({0, 1, 2, 3}),
                                  mask_of({3})};
    for (const char* fixture : {"llama-f32", "qwen3-bf16"}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const int dim = file.config().dim;
        const auto backend = prefixed(file, {fixture, Dtype::F32, KvType::F32});
        ReferenceBackend plain{file, {.kv_slots = 512, .kv_type = KvType::F32}};
        std::mt19937 rng{52};
        (void)sequence_logits(plain, random_tokens(rng, file.config().vocab_size, kPrefix), 8);
        Wave got{file.config(), 12};
        Wave want{file.config(), 12};
        for (Wave* wave : {&got, &want}) {
            mix(*wave, file.config().sublayers(), masks);
            wave->want_stacks(dim);
        }
        got.run(*backend);
        want.run(plain);
        CHECK(deviation(got.hidden, want.hidden, dim).relative < 1e-4);
        for (std::size_t r = 0; r < got.rows.size(); ++r) {
            CAPTURE(r);
            CHECK(deviation(got.stacks[r], want.stacks[r], dim).relative < 1e-4);
        }
    }
}

TEST_CASE("a stack has the states that runs which end there give, and keeping it changes no bit") {
    const SublayerMask masks[] = {mask_of({1}), mask_of({0, 1}), mask_of({2})};
    for (const Setting& setting : kSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const auto backend = prefixed(file, setting);
        Wave kept{file.config(), 8};
        mix(kept, file.config().sublayers(), masks);
        Wave bare = kept;
        bare.rows = kept.rows;
        kept.want_stacks(file.config().dim);
        const Wave before = bare;
        kept.run(*backend);
        bare.run(*backend);
        CHECK(same_bits(kept.hidden, bare.hidden));
        for (std::size_t r = 0; r < kept.rows.size(); ++r) {
            const Row& row = before.rows[r];
            for (int last = row.first + 1; last <= row.last; ++last) {
                CAPTURE(r);
                CAPTURE(last);
                Row alone = row;
                alone.last = last;
                std::vector<float> state(before.state(r, dim).begin(), before.state(r, dim).end());
                REQUIRE(backend->run_layers({&alone, 1}, state, nullptr) == RunOutcome::Done);
                const auto at = static_cast<std::size_t>(last - row.first - 1) * dim;
                CHECK(same_bits(std::span(kept.stacks[r]).subspan(at, dim), state));
            }
        }
    }
}

TEST_CASE("a row keeps its bits whatever its neighbours skip") {
    const SublayerMask masks[] = {mask_of({0}), mask_of({1, 2}), mask_of({0, 1, 2, 3}),
                                  mask_of({3})};
    for (const Setting& setting : kSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const auto backend = prefixed(file, setting);
        Wave alike{file.config(), 19};
        alike.run(*backend);
        Wave masked{file.config(), 19};
        for (std::size_t r = 0; r < 19; ++r) {
            if (r % 3 != 0) masked.rows[r].mask = &masks[r % 4];
        }
        masked.run(*backend);
        for (std::size_t r = 0; r < 19; r += 3) {
            CAPTURE(r);
            CHECK(same_bits(masked.state(r, dim), alike.state(r, dim)));
        }
    }
}

TEST_CASE("a mixed wave's rows have the bits that each has alone") {
    const SublayerMask masks[] = {mask_of({1, 2}), mask_of({0}), mask_of({3})};
    for (const Setting& setting : kSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const auto backend = prefixed(file, setting);
        Wave wave{file.config(), 35};
        mix(wave, file.config().sublayers(), masks);
        const std::vector<float> before = wave.hidden;
        wave.run(*backend);
        for (std::size_t r = 0; r < wave.rows.size(); ++r) {
            CAPTURE(r);
            std::vector<float> state(before.begin() + static_cast<std::ptrdiff_t>(r * dim),
                                     before.begin() + static_cast<std::ptrdiff_t>((r + 1) * dim));
            REQUIRE(backend->run_layers({&wave.rows[r], 1}, state, nullptr) == RunOutcome::Done);
            CHECK(same_bits(wave.state(r, dim), state));
        }
    }
}

TEST_CASE("a row run in two calls has the bits of one, wherever it is cut") {
    for (const Setting& setting : kSettings) {
        const ModelFile file = open_fixture(setting.fixture);
        const auto backend = prefixed(file, setting);
        Wave whole{file.config(), 5};
        whole.run(*backend);
        for (int cut = 0; cut <= file.config().sublayers(); ++cut) {
            CAPTURE(setting.fixture);
            CAPTURE(cut);
            Wave parts{file.config(), 5};
            for (Row& row : parts.rows) row.last = cut;
            parts.run(*backend);
            for (Row& row : parts.rows) {
                row.first = cut;
                row.last = file.config().sublayers();
            }
            parts.run(*backend);
            CHECK(same_bits(parts.hidden, whole.hidden));
        }
    }
}

TEST_CASE("a row that runs nothing gives its embedding, or what it was given") {
    const ModelFile file = open_fixture("llama-f32");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto backend = prefixed(file, kSettings[0]);
    const SublayerMask all = mask_of({0, 1, 2, 3});
    Wave wave{file.config(), 3};
    wave.rows[0].last = 0;
    wave.rows[1].mask = &all;
    wave.rows[2].first = wave.rows[2].last = 3;
    const std::vector<float> given = wave.hidden;
    wave.run(*backend);
    for (const std::size_t r : {std::size_t{0}, std::size_t{1}}) {
        std::vector<float> embedding(dim);
        dequantize_row(file.embedding(), wave.rows[r].token, embedding);
        CHECK(same_bits(wave.state(r, dim), embedding));
    }
    CHECK(same_bits(wave.state(2, dim), std::span(given).subspan(2 * dim, dim)));
}

TEST_CASE("a stack begins with the embedding where all rows skip the first sub-layer") {
    const ModelFile file = open_fixture("llama-f32");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto backend = prefixed(file, kSettings[0]);
    const SublayerMask mask = mask_of({0});
    Wave wave{file.config(), 2};
    wave.want_stacks(file.config().dim);
    for (Row& row : wave.rows) row.mask = &mask;
    wave.run(*backend);
    for (std::size_t r = 0; r < 2; ++r) {
        std::vector<float> embedding(dim);
        dequantize_row(file.embedding(), wave.rows[r].token, embedding);
        CHECK(same_bits(std::span(wave.stacks[r]).first(dim), embedding));
    }
}

}  // namespace
}  // namespace paceline
