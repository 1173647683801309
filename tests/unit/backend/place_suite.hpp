// Rows in memory of the backend's own (Backend::make_rows): the bits of rows on the host, whatever
// is done with them, and rows copied between the two.
#pragma once

#include "tests/unit/backend/head_suite.hpp"
#include "tests/unit/backend/specs.hpp"

namespace paceline::testing {

/// Hidden states in memory of the backend's own.
struct Placed {
    Placed(Backend& backend, std::size_t rows) : memory{backend.make_rows(rows)} {}
    Placed(Backend& backend, std::span<const float> hidden)
        : Placed{backend, hidden.size() / static_cast<std::size_t>(backend.config().dim)} {
        gather_all(backend, hidden, memory.rows);
    }
    static void gather_all(Backend& backend, ConstHiddenRows from, HiddenRows to) {
        std::vector<RowSource> rows;
        const auto dim = static_cast<std::size_t>(backend.config().dim);
        for (std::size_t r = 0; r * dim < to.size(); ++r) rows.push_back({from, r});
        backend.gather(rows, to);
    }
    [[nodiscard]] std::vector<float> on_host(Backend& backend) const {
        std::vector<float> hidden(memory.rows.size());
        gather_all(backend, memory.rows, hidden);
        return hidden;
    }
    RowMemory memory;
};

TEST_CASE_TEMPLATE_DEFINE(
    "layers that work in the backend's own memory give the bits of the host's",
    Traits,
    LayersInPlace) {
    std::mt19937 rng{101};
    for (const char* fixture : {"llama-q4_1", "llama-f32"}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 21);
        const std::vector<KvSlot> slots = home_slots(tokens.size());
        const int cut = file.config().layers / 2;
        What front{.last_layer = cut};
        What back{.first_layer = cut};
        back.rows_max = 8;  // several batches
        const auto first = Traits::make(file, front);
        const auto second = Traits::make(file, back);
        const std::vector<Row> begin = text_rows(*first, tokens, slots);
        const std::vector<Row> end = text_rows(*second, tokens, slots);
        std::vector<float> want = states_of(*first, begin);
        Placed placed{*first, tokens.size()};
        REQUIRE(placed.memory.rows.place() == first->memory_place());
        REQUIRE(first->run_layers(begin, placed.memory.rows, nullptr) == RunOutcome::Done);
        CHECK(same_bits(placed.on_host(*first), want));
        // One backend's rows go through the next one's layers where they are.
        REQUIRE(second->run_layers(end, want, nullptr) == RunOutcome::Done);
        REQUIRE(second->run_layers(end, placed.memory.rows, nullptr) == RunOutcome::Done);
        CHECK(same_bits(placed.on_host(*second), want));
    }
}

TEST_CASE_TEMPLATE_DEFINE("a head reads the backend's own memory as it reads the host's",
                          Traits,
                          HeadsInPlace) {
    std::mt19937 rng{102};
    const ModelFile file = open_fixture("llama-q4_1");
    const std::vector<HeadSpec> heads = all_heads(rng, file.config());
    const auto backend = Traits::make(file, {.heads = heads, .rows_max = 4});
    const std::vector<float> hidden = random_hidden(rng, 9, file.config().dim);
    const Placed placed{*backend, hidden};
    const auto vocab = static_cast<std::size_t>(file.config().vocab_size);
    for (int head = 0; head <= static_cast<int>(heads.size()); ++head) {
        CAPTURE(head);
        const auto id = static_cast<HeadId>(head);
        std::vector<float> logits(9 * vocab);
        backend->head(id, placed.memory.rows, 9, logits);
        CHECK(same_bits(logits, logits_of(*backend, id, hidden)));
        const std::size_t listed = backend->short_list(id).size();
        if (listed == 0) continue;
        std::vector<float> few(9 * listed);
        backend->head_listed(id, placed.memory.rows, 9, few);
        CHECK(same_bits(few, listed_logits(*backend, id, hidden)));
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "an adapter reads and writes the backend's own memory as it does the host's",
    Traits,
    AdapterInPlace) {
    std::mt19937 rng{103};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend =
        Traits::make(file, {.last_layer = 1, .adapter = random_adapter(rng, file.config())});
    const std::vector<TokenId> tokens = random_tokens(rng, file.config().vocab_size, 12);
    const std::vector<KvSlot> slots = home_slots(tokens.size());
    const std::vector<Row> rows = text_rows(*backend, tokens, slots);
    const std::vector<float> hidden = random_hidden(rng, tokens.size(), file.config().dim);
    std::vector<float> want(hidden.size());
    REQUIRE(backend->run_adapter(rows, hidden, want, nullptr) == RunOutcome::Done);
    const Placed placed{*backend, hidden};
    const Placed out{*backend, tokens.size()};
    REQUIRE(backend->run_adapter(rows, placed.memory.rows, out.memory.rows, nullptr) ==
            RunOutcome::Done);
    CHECK(same_bits(out.on_host(*backend), want));
    CHECK(same_bits(placed.on_host(*backend), hidden));
}

TEST_CASE_TEMPLATE_DEFINE(
    "gathered rows are those that were named, from any memory into any, and a gap stays as it was",
    Traits,
    GatheredRows) {
    std::mt19937 rng{104};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto backend = Traits::make(file, {.rows_max = 5});
    const std::vector<float> left = random_hidden(rng, 7, file.config().dim);
    const std::vector<float> right = random_hidden(rng, 9, file.config().dim);
    const Placed placed{*backend, right};
    for (const std::size_t count : {0U, 1U, 4U, 5U, 17U}) {
        CAPTURE(count);
        std::vector<RowSource> rows;
        std::vector<float> host = random_hidden(rng, count, file.config().dim);
        const Placed device{*backend, host};
        std::vector<float> want;
        for (std::size_t i = 0; i < count; ++i) {
            const bool gap = rng() % 3 == 0;
            const bool from_host = rng() % 2 == 0;
            const std::size_t row = rng() % (from_host ? 7 : 9);
            const std::span<const float> all{from_host ? left : right};
            const auto own = gap ? std::span<const float>{host}.subspan(i * dim, dim)
                                 : all.subspan(row * dim, dim);
            want.insert(want.end(), own.begin(), own.end());
            rows.push_back({from_host ? ConstHiddenRows{left} : placed.memory.rows, row});
            if (gap) rows.back() = {};
        }
        backend->gather(rows, host);
        CHECK(same_bits(host, want));
        backend->gather(rows, device.memory.rows);
        CHECK(same_bits(device.on_host(*backend), want));
    }
}

TEST_CASE_TEMPLATE_DEFINE("a block of rows is copied from any memory into any",
                          Traits,
                          CopiedRows) {
    std::mt19937 rng{106};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend = Traits::make(file, {.rows_max = 5});
    for (const std::size_t count : {0U, 1U, 5U, 17U}) {
        CAPTURE(count);
        const std::vector<float> want = random_hidden(rng, count, file.config().dim);
        const Placed first{*backend, count};
        const Placed second{*backend, count};
        std::vector<float> got(want.size());
        std::vector<float> host(want.size());
        backend->copy(want, first.memory.rows);
        backend->copy(first.memory.rows, second.memory.rows);
        backend->copy(second.memory.rows, got);
        CHECK(same_bits(got, want));
        backend->copy(want, host);
        CHECK(same_bits(host, want));
    }
}

TEST_CASE_TEMPLATE_DEFINE("rows that lie in order stay where they are, others are gathered",
                          Traits,
                          RowsInOrder) {
    std::mt19937 rng{105};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto backend = Traits::make(file, {});
    const Placed placed{*backend, random_hidden(rng, 6, file.config().dim)};
    const HiddenRows all = placed.memory.rows;
    RowMemory room;
    const RowSource in_order[] = {{all, 2}, {all, 3}, {all, 4}};
    CHECK(backend->in_order(in_order, room).data() == all.subspan(2 * dim, 3 * dim).data());
    CHECK(room.rows.empty());
    const RowSource apart[] = {{all, 2}, {all, 4}, {all, 1}};
    const ConstHiddenRows gathered = backend->in_order(apart, room);
    CHECK(gathered.data() == room.rows.data());
    CHECK(gathered.size() == 3 * dim);
    std::vector<float> got(3 * dim);
    Placed::gather_all(*backend, gathered, got);
    const std::vector<float> host = placed.on_host(*backend);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(same_bits(std::span(got).subspan(i * dim, dim),
                        std::span(host).subspan(apart[i].row * dim, dim)));
    }
}

}  // namespace paceline::testing
