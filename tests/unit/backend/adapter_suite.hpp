// An exit's adapter: what it agrees with, rows' bits, whose keys it sees, cancellation, what is
// refused.
#pragma once

#include <cmath>
#include <functional>
#include <tuple>

#include "model/reference/reference_backend.hpp"
#include "tests/unit/backend/head_suite.hpp"
#include "tests/unit/backend/specs.hpp"
#include "tests/unit/backend/what.hpp"

namespace paceline::testing {

inline std::vector<float> adapted(Backend& backend,
                                  std::span<const Row> rows,
                                  std::span<const float> hidden) {
    std::vector<float> out(hidden.size());
    REQUIRE(backend.run_adapter(rows, hidden, out, nullptr) == RunOutcome::Done);
    return out;
}

/// A text of `count` rows, then two siblings after it in scratch slots and a row below the second.
struct ForkedText {
    std::vector<KvSlot> slots;
    std::vector<KvSlot> paths[3];
    std::vector<Row> rows;

    ForkedText(const Backend& backend, Position count)
        : slots{home_slots(static_cast<std::size_t>(count))} {
        const KvSlot scratch = (count / kKvPageSlots + 2) * kKvPageSlots;
        paths[0] = {scratch + 5};
        paths[1] = {scratch + 11};
        paths[2] = {scratch + 11, scratch + 3};
        for (Position p = 0; p < count; ++p) rows.push_back(sequence_row(backend, 0, p, slots));
        for (const std::vector<KvSlot>& path : paths) {
            Row row = rows.back();
            row.path_slots = path.data();
            row.path_count = static_cast<std::int32_t>(path.size());
            row.prefix_count = count;
            row.position = count - 1 + row.path_count;
            row.slot = path.back();
            rows.push_back(row);
        }
    }
    ForkedText(const ForkedText&) = delete;
    ForkedText& operator=(const ForkedText&) = delete;
};

TEST_CASE_TEMPLATE_DEFINE("an adapter agrees with the reference backend's, in a text and in a tree",
                          Traits,
                          AdapterAgrees) {
    std::mt19937 rng{71};
    const std::tuple<const char*, Dtype, KvType, double> settings[] = {
        {"llama-f32", Dtype::F32, KvType::F32, Traits::kAdapterTolerance},
        {"llama-untied-f16", Dtype::Auto, Traits::kNarrowKv, 3e-2},
        {"llama-q4_1", Dtype::Auto, Traits::kNarrowKv, 5e-2},
    };
    for (const auto& [fixture, dtype, kv, tolerance] : settings) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const AdapterSpec adapter = random_adapter(rng, file.config());
        const auto backend = Traits::make(file, {.dtype = dtype,
                                                 .kv = kv,
                                                 .first_layer = 1,
                                                 .last_layer = 2,
                                                 .adapter = adapter,
                                                 .threads = 2});
        ReferenceBackend plain{file,
                               {.first_layer = 1,
                                .last_layer = 2,
                                .kv_slots = 512,
                                .kv_type = kv,
                                .adapter = adapter}};
        REQUIRE(backend->has_adapter());
        REQUIRE(plain.has_adapter());
        const ForkedText text{*backend, Traits::kAdapterTokens};
        const std::vector<float> hidden = random_hidden(rng, text.rows.size(), file.config().dim);
        const std::vector<float> x = adapted(*backend, text.rows, hidden);
        const std::vector<float> want = adapted(plain, text.rows, hidden);
        CHECK(worst_error(x, want) < tolerance);
        CHECK(worst_error(logits_of(*backend, HeadId::Adapter, x),
                          logits_of(plain, HeadId::Adapter, want)) < tolerance);
        CHECK(worst_error(x, hidden) > 2 * tolerance);  // it does something
    }
}

template <class Traits>
void check_adapter_rows(const ModelFile& file, What what, std::mt19937& rng) {
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto alone = Traits::make(file, what);
    const ForkedText text{*alone, 90};
    const std::vector<float> hidden = random_hidden(rng, text.rows.size(), file.config().dim);
    std::vector<float> want;
    for (std::size_t r = 0; r < text.rows.size(); ++r) {
        const std::vector<float> row = adapted(*alone, std::span{text.rows}.subspan(r, 1),
                                               std::span{hidden}.subspan(r * dim, dim));
        want.insert(want.end(), row.begin(), row.end());
    }
    const std::vector<float> logits = logits_of(*alone, HeadId::Adapter, want);
    for (const Build& build : Traits::kBuilds) {
        CAPTURE(build.rows_max);
        CAPTURE(build.threads);
        what.rows_max = build.rows_max;
        what.threads = build.threads;
        const auto together = Traits::make(file, what);
        const std::vector<float> got = adapted(*together, text.rows, hidden);
        CHECK(same_bits(got, want));
        CHECK(same_bits(logits_of(*together, HeadId::Adapter, got), logits));
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "an adapter's rows have the same bits alone, in chunks of any size and on any number of "
    "threads",
    Traits,
    AdapterRows) {
    std::mt19937 rng{72};
    for (const auto& [fixture, dtype] :
         {std::pair{"llama-q4_1", Dtype::Auto}, {"llama-f32", Dtype::F32}}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const AdapterSpec adapter = random_adapter(rng, file.config());
        for (const std::optional<Isa>& isa : Traits::isas()) {
            CAPTURE(static_cast<int>(isa.value_or(Isa::Portable)));
            check_adapter_rows<Traits>(
                file, {.dtype = dtype, .last_layer = 1, .adapter = adapter, .isa = isa}, rng);
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "an adapter's keys are its own: the layers' text and bits do not change with it",
    Traits,
    AdapterKeys) {
    std::mt19937 rng{73};
    const ModelFile file = open_fixture("llama-untied-f16");
    const auto bare = Traits::make(file, {.last_layer = 1});
    const auto with =
        Traits::make(file, {.last_layer = 1, .adapter = random_adapter(rng, file.config())});
    const std::vector<KvSlot> slots = home_slots(20);
    for (Position p = 0; p < 20; ++p) {
        const Row row = sequence_row(*bare, 3 + p, p, slots);
        const std::vector<float> state = states_of(*with, {&row, 1});
        CHECK(same_bits(states_of(*bare, {&row, 1}), state));
        (void)adapted(*with, {&row, 1}, state);
    }
    CHECK(bare->kv_bytes() == with->kv_bytes());
    CHECK(bare->equality_class() == with->equality_class());
    CHECK_FALSE(bare->has_adapter());
}

TEST_CASE_TEMPLATE_DEFINE("rows that an adapter never saw leave its candidates finite",
                          Traits,
                          AdapterUnseenRows) {
    std::mt19937 rng{74};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto backend =
        Traits::make(file, {.last_layer = 1, .adapter = random_adapter(rng, file.config())});
    const std::vector<KvSlot> slots = home_slots(50);
    const Row row = sequence_row(*backend, 0, 49, slots);
    const std::vector<float> hidden = random_hidden(rng, 1, file.config().dim);
    for (const float x : adapted(*backend, {&row, 1}, hidden)) CHECK(std::isfinite(x));
}

TEST_CASE_TEMPLATE_DEFINE(
    "the logits of an adapter's short list alone are those among the whole vocabulary",
    Traits,
    AdapterShortList) {
    std::mt19937 rng{75};
    const ModelFile file = open_fixture("llama-q4_1");
    const AdapterSpec adapter = random_adapter(rng, file.config());
    const auto backend =
        Traits::make(file, {.last_layer = 1, .adapter = adapter, .rows_max = 4, .threads = 2});
    const std::vector<float> hidden = random_hidden(rng, 9, file.config().dim);
    REQUIRE(std::ranges::equal(backend->short_list(HeadId::Adapter), adapter.tokens));
    CHECK(same_bits(listed_logits(*backend, HeadId::Adapter, hidden),
                    places_of(logits_of(*backend, HeadId::Adapter, hidden), adapter.tokens,
                              file.config().vocab_size)));
}

TEST_CASE_TEMPLATE_DEFINE("an adapter's call that was cancelled before it begins says so",
                          Traits,
                          AdapterCancelled) {
    std::mt19937 rng{76};
    const ModelFile file = open_fixture("llama-f32");
    const auto backend = Traits::make(file, {.adapter = random_adapter(rng, file.config())});
    const Text text{*backend, 3};
    std::vector<float> out(text.hidden.size());
    CancelToken cancel;
    cancel.cancel();
    CHECK(backend->run_adapter(text.rows, text.hidden, out, &cancel) == RunOutcome::Cancelled);
    CHECK(backend->run_adapter(text.rows, text.hidden, out, nullptr) == RunOutcome::Done);
}

TEST_CASE_TEMPLATE_DEFINE(
    "adapters that make no sense are refused with field and value in the text",
    Traits,
    AdaptersRefused) {
    std::mt19937 rng{77};
    const ModelFile file = open_fixture("llama-q4_1");
    const auto refused = [&](const std::function<void(AdapterSpec&)>& spoil,
                             const std::string& part) {
        AdapterSpec spec = random_adapter(rng, file.config());
        spoil(spec);
        const Error error = Traits::refused(file, {.adapter = spec});
        CHECK(error.code == Errc::BadArgument);
        CHECK_MESSAGE(error.what.find(part) != std::string::npos, error.what);
    };
    refused([](AdapterSpec& s) { s.head_dim = 7; }, "adapter.head_dim = 7");
    refused([](AdapterSpec& s) { s.kv_heads = 0; }, "adapter.kv_heads = 0");
    refused([](AdapterSpec& s) { ++s.heads; }, "must be a multiple of kv_heads");
    refused([](AdapterSpec& s) { s.heads = 1 << 30; }, "adapter.heads = 1073741824");
    refused([](AdapterSpec& s) { s.q.pop_back(); }, "adapter.q has");
    refused([](AdapterSpec& s) { s.out_norm.clear(); }, "adapter.out_norm has 0 numbers");
    refused([](AdapterSpec& s) { s.v[3] = std::nanf(""); }, "adapter.v[3] is not a finite");
    refused([](AdapterSpec& s) { s.tokens = {4, 4}; }, "adapter.tokens[1] = 4, must be above");
}

}  // namespace paceline::testing
