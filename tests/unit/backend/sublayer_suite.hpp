// Rows that start, stop and skip at different sub-layers, and what they keep of each.
#pragma once

#include <array>

#include "model/reference/reference_backend.hpp"
#include "tests/unit/backend/fixture.hpp"
#include "tests/unit/backend/what.hpp"

namespace paceline::testing {

inline constexpr int kSiblingPrefix = 20;
inline constexpr Setting kSublayerSettings[] = {
    {"llama-f32", Dtype::F32, KvType::F32},
    {"qwen3-bf16", Dtype::Auto, KvType::BF16},
    {"llama-q4_1", Dtype::Auto, KvType::F16},
};

/// Continuations of one prefix side by side: no row reads what another one writes.
struct Siblings {
    std::vector<KvSlot> slots = home_slots(kSiblingPrefix);
    std::vector<KvSlot> own;
    std::vector<std::vector<float>> stacks;
    std::vector<float> hidden;
    std::vector<Row> rows;

    Siblings(const ModelConfig& config, int count) {
        for (int i = 0; i < count; ++i) own.push_back(kSiblingPrefix + 1 + 3 * i);
        for (int i = 0; i < count; ++i) {
            Row row;
            row.token = 7 + i;
            row.position = kSiblingPrefix;
            row.slot = own[static_cast<std::size_t>(i)];
            row.prefix_slots = slots.data();
            row.prefix_count = kSiblingPrefix;
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

inline void feed_prefix(Backend& backend) {
    std::mt19937 rng{52};
    (void)sequence_logits(backend, random_tokens(rng, backend.config().vocab_size, kSiblingPrefix),
                          8);
}

template <class Traits>
std::unique_ptr<Backend> prefixed(const ModelFile& file, const Setting& setting) {
    auto backend = Traits::make(file, {.dtype = setting.dtype, .kv = setting.kv, .threads = 2});
    feed_prefix(*backend);
    return backend;
}

inline SublayerMask mask_of(std::initializer_list<int> sublayers) {
    SublayerMask mask;
    for (const int sublayer : sublayers) mask.skip(sublayer);
    return mask;
}

/// Rows of every kind: first, last and mask differ, two have nothing to do.
inline void mix(Siblings& batch, int sublayers, std::span<const SublayerMask> masks) {
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
        const int n = static_cast<int>(i);
        batch.rows[i].first = n % 3;
        batch.rows[i].last = sublayers - n % 2;
        if (i % 4 != 0) batch.rows[i].mask = &masks[i % masks.size()];
    }
    batch.rows[4].first = batch.rows[4].last = 2;
    batch.rows[5].first = batch.rows[5].last = 0;
}

inline std::vector<float> embedding_of(const ModelFile& file, TokenId token) {
    std::vector<float> row(static_cast<std::size_t>(file.config().dim));
    dequantize_row(file.embedding(), token, row);
    return row;
}

TEST_CASE_TEMPLATE_DEFINE(
    "rows that start, stop and skip anywhere agree with the reference, states and stacks",
    Traits,
    SublayersAgree) {
    const SublayerMask masks[] = {mask_of({1, 2}), mask_of({0}), mask_of({0, 1, 2, 3}),
                                  mask_of({3})};
    for (const char* fixture : {"llama-f32", "qwen3-bf16"}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const int dim = file.config().dim;
        const auto backend = prefixed<Traits>(file, {fixture, Dtype::F32, KvType::F32});
        ReferenceBackend plain{file, {.kv_slots = 512, .kv_type = KvType::F32}};
        feed_prefix(plain);
        Siblings got{file.config(), 12};
        Siblings want{file.config(), 12};
        for (Siblings* batch : {&got, &want}) {
            mix(*batch, file.config().sublayers(), masks);
            batch->want_stacks(dim);
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

/// A skipped sub-layer repeats the entry before it, another one does not.
inline void check_repeats(const Row& row, std::span<const float> stack, std::size_t dim) {
    for (int s = row.first + 1; s < row.last; ++s) {
        CAPTURE(s);
        const auto at = static_cast<std::size_t>(s - row.first) * dim;
        const bool skipped = row.mask != nullptr && row.mask->skips(s);
        CHECK(same_bits(stack.subspan(at, dim), stack.subspan(at - dim, dim)) == skipped);
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "a stack has the states that runs which end there give, and keeping it changes no bit",
    Traits,
    Stacks) {
    const SublayerMask masks[] = {mask_of({1}), mask_of({0, 1}), mask_of({2})};
    for (const Setting& setting : kSublayerSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const auto backend = prefixed<Traits>(file, setting);
        Siblings kept{file.config(), 8};
        mix(kept, file.config().sublayers(), masks);
        Siblings bare = kept;
        bare.rows = kept.rows;
        kept.want_stacks(file.config().dim);
        const Siblings before = bare;
        kept.run(*backend);
        bare.run(*backend);
        CHECK(same_bits(kept.hidden, bare.hidden));
        for (std::size_t r = 0; r < kept.rows.size(); ++r) {
            CAPTURE(r);
            const Row& row = before.rows[r];
            check_repeats(row, kept.stacks[r], dim);
            for (int last = row.first + 1; last <= row.last; ++last) {
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

TEST_CASE_TEMPLATE_DEFINE("a row keeps its bits whatever its neighbours skip",
                          Traits,
                          NeighboursSkip) {
    const SublayerMask masks[] = {mask_of({0}), mask_of({1, 2}), mask_of({0, 1, 2, 3}),
                                  mask_of({3})};
    for (const Setting& setting : kSublayerSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const auto backend = prefixed<Traits>(file, setting);
        Siblings alike{file.config(), 19};
        alike.run(*backend);
        Siblings masked{file.config(), 19};
        for (std::size_t r = 0; r < 19; ++r) {
            if (r % 3 != 0) masked.rows[r].mask = &masks[r % 4];
        }
        masked.run(*backend);
        for (std::size_t r = 0; r < 19; ++r) {
            CAPTURE(r);
            CHECK(same_bits(masked.state(r, dim), alike.state(r, dim)) == (r % 3 == 0));
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE("a mixed batch's rows have the bits that each has alone",
                          Traits,
                          MixedBatch) {
    const SublayerMask masks[] = {mask_of({1, 2}), mask_of({0}), mask_of({3})};
    for (const Setting& setting : kSublayerSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const auto backend = prefixed<Traits>(file, setting);
        Siblings batch{file.config(), 35};
        mix(batch, file.config().sublayers(), masks);
        const std::vector<float> before = batch.hidden;
        batch.run(*backend);
        for (std::size_t r = 0; r < batch.rows.size(); ++r) {
            CAPTURE(r);
            std::vector<float> state(before.begin() + static_cast<std::ptrdiff_t>(r * dim),
                                     before.begin() + static_cast<std::ptrdiff_t>((r + 1) * dim));
            REQUIRE(backend->run_layers({&batch.rows[r], 1}, state, nullptr) == RunOutcome::Done);
            CHECK(same_bits(batch.state(r, dim), state));
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE("a row run in two calls has the bits of one, wherever it is cut",
                          Traits,
                          TwoCalls) {
    // Siblings, and a text of another request whose rows see each other.
    const std::array<KvSlot, 6> text_slots{300, 305, 301, 304, 302, 303};
    const std::vector<TokenId> text{17, 200, 9, 301, 4, 5};
    for (const Setting& setting : kSublayerSettings) {
        const ModelFile file = open_fixture(setting.fixture);
        const auto backend = prefixed<Traits>(file, setting);
        const int end = file.config().sublayers();
        Siblings batch{file.config(), 5};
        for (const Row& row : text_rows(*backend, text, text_slots)) batch.rows.push_back(row);
        const std::vector<float> whole = states_of(*backend, batch.rows);
        for (int cut = 0; cut <= end; ++cut) {
            CAPTURE(setting.fixture);
            CAPTURE(cut);
            for (Row& row : batch.rows) row.first = 0, row.last = cut;
            std::vector<float> hidden = states_of(*backend, batch.rows);
            for (Row& row : batch.rows) row.first = cut, row.last = end;
            REQUIRE(backend->run_layers(batch.rows, hidden, nullptr) == RunOutcome::Done);
            CHECK(same_bits(hidden, whole));
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "without the sub-layers that all rows skip a backend is smaller and gives the same bits",
    Traits,
    AlwaysSkipped) {
    for (const Setting& setting : kSublayerSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        for (const SublayerMask& mask : {mask_of({2}), mask_of({1, 2}), mask_of({0, 3})}) {
            const auto whole =
                Traits::make(file, {.dtype = setting.dtype, .kv = setting.kv, .threads = 2});
            const auto part = Traits::make(
                file, {.dtype = setting.dtype, .kv = setting.kv, .threads = 2, .skipped = mask});
            CHECK(part->memory_use().weight_bytes < whole->memory_use().weight_bytes);
            const bool attends = !mask.skips(0) && !mask.skips(2);
            CHECK(part->memory_use().kv_bytes * (attends ? 1 : 2) == whole->memory_use().kv_bytes);
            CHECK(part->kv_bytes() * (attends ? 1 : 2) == whole->kv_bytes());
            const std::vector<KvSlot> slots = home_slots(kSiblingPrefix + 1);
            std::vector<Row> text;
            for (Position p = 0; p < kSiblingPrefix; ++p)
                text.push_back(sequence_row(*whole, 11 + p, p, slots));
            for (Row& row : text) row.mask = &mask;
            CHECK(same_bits(states_of(*part, text), states_of(*whole, text)));
            for (int call = 0; call < 3; ++call) {  // a GPU replays the third one
                Siblings a{file.config(), 3};
                Siblings b{file.config(), 3};
                for (Siblings* batch : {&a, &b}) {
                    if (call == 1) batch->want_stacks(file.config().dim);
                    for (Row& row : batch->rows) row.mask = &mask;
                }
                a.run(*whole);
                b.run(*part);
                CHECK(same_bits(a.hidden, b.hidden));
                CHECK(a.stacks == b.stacks);
            }
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "a row that runs nothing gives its embedding, or what it was given, and writes no keys",
    Traits,
    NothingToRun) {
    const ModelFile file = open_fixture("llama-f32");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto backend = prefixed<Traits>(file, kSublayerSettings[0]);
    const SublayerMask all = mask_of({0, 1, 2, 3});
    Siblings batch{file.config(), 4};
    const std::vector<float> successor = states_of(*backend, {&batch.rows[3], 1});
    batch.rows[0].last = 0;
    batch.rows[1].mask = &all;
    batch.rows[2].first = batch.rows[2].last = 3;
    batch.rows[3] = sequence_row(*backend, 5, kSiblingPrefix - 1, batch.slots);
    batch.rows[3].mask = &all;  // in the slot that the prefix ends with
    const std::vector<float> given = batch.hidden;
    batch.run(*backend);
    for (const std::size_t r : {std::size_t{0}, std::size_t{1}, std::size_t{3}})
        CHECK(same_bits(batch.state(r, dim), embedding_of(file, batch.rows[r].token)));
    CHECK(same_bits(batch.state(2, dim), std::span(given).subspan(2 * dim, dim)));
    CHECK(same_bits(states_of(*backend, {&Siblings{file.config(), 4}.rows[3], 1}), successor));
}

TEST_CASE_TEMPLATE_DEFINE(
    "a stack begins with the embedding where all rows skip the first sub-layer",
    Traits,
    StackOfEmbedding) {
    const ModelFile file = open_fixture("llama-f32");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto backend = prefixed<Traits>(file, kSublayerSettings[0]);
    const SublayerMask mask = mask_of({0});
    Siblings batch{file.config(), 2};
    batch.want_stacks(file.config().dim);
    for (Row& row : batch.rows) row.mask = &mask;
    batch.run(*backend);
    for (std::size_t r = 0; r < 2; ++r)
        CHECK(same_bits(std::span(batch.stacks[r]).first(dim),
                        embedding_of(file, batch.rows[r].token)));
}

TEST_CASE_TEMPLATE_DEFINE(
    "a row that brings the input of the first layer has the bits of one whose embedding it is",
    Traits,
    GivenRows) {
    for (const Setting& setting : kSublayerSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const auto backend = prefixed<Traits>(file, setting);
        Siblings own{file.config(), 9};
        own.run(*backend);
        Siblings batch{file.config(), 9};
        for (std::size_t r = 0; r < batch.rows.size(); ++r) {
            if (r % 4 == 3) continue;  // begins with its token, beside the others
            const std::vector<float> embedding = embedding_of(file, batch.rows[r].token);
            std::copy(embedding.begin(), embedding.end(),
                      batch.hidden.begin() + static_cast<std::ptrdiff_t>(r * dim));
            batch.rows[r].given = true;
            batch.rows[r].token = 0;  // is not read
        }
        const std::vector<float> input = batch.hidden;
        for (int call = 0; call < 3; ++call) {  // a GPU replays the third one
            batch.hidden = input;
            batch.run(*backend);
            CHECK(same_bits(batch.hidden, own.hidden));
        }
        // Another input; and one that is given back, as there is nothing to run.
        batch.hidden = input;
        for (std::size_t i = 0; i < dim; ++i) batch.hidden[i] += 0.25f;
        batch.rows[1].last = 0;
        batch.run(*backend);
        CHECK_FALSE(same_bits(batch.state(0, dim), own.state(0, dim)));
        CHECK(same_bits(batch.state(1, dim), std::span(input).subspan(dim, dim)));
        CHECK(same_bits(batch.state(2, dim), own.state(2, dim)));
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "a stack with a mask has the states after the other sub-layers, and changes no bit",
    Traits,
    MaskedStacks) {
    for (const Setting& setting : kSublayerSettings) {
        CAPTURE(setting.fixture);
        const ModelFile file = open_fixture(setting.fixture);
        const auto dim = static_cast<std::size_t>(file.config().dim);
        const auto sublayers = static_cast<std::size_t>(file.config().sublayers());
        const auto backend = prefixed<Traits>(file, setting);
        for (const std::vector<int>& wanted : {std::vector<int>{1}, {1, 3}, {0, 3}, {2}}) {
            SublayerMask others;
            for (int s = 0; s < file.config().sublayers(); ++s) {
                if (std::count(wanted.begin(), wanted.end(), s) == 0) others.skip(s);
            }
            Siblings whole{file.config(), 6};
            whole.want_stacks(file.config().dim);
            whole.run(*backend);
            Siblings some{file.config(), 6};
            some.want_stacks(file.config().dim);
            for (std::size_t r = 0; r < some.rows.size(); ++r) {
                some.rows[r].stack_mask = &others;
                if (r % 3 == 2) some.rows[r].stack = nullptr;  // keeps nothing, beside the others
            }
            some.run(*backend);
            CHECK(same_bits(some.hidden, whole.hidden));
            for (std::size_t r = 0; r < some.rows.size(); ++r) {
                CAPTURE(r);
                std::vector<float> want(sublayers * dim, -77.0f);
                for (std::size_t i = 0; r % 3 != 2 && i < wanted.size(); ++i) {
                    const auto from = std::span(whole.stacks[r])
                                          .subspan(static_cast<std::size_t>(wanted[i]) * dim, dim);
                    std::copy(from.begin(), from.end(),
                              want.begin() + static_cast<std::ptrdiff_t>(i * dim));
                }
                CHECK(same_bits(some.stacks[r], want));
            }
        }
    }
}

}  // namespace paceline::testing
