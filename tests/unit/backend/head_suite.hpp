// Heads beside the final one: what they agree with, rows' bits, short lists, what is refused.
#pragma once

#include <cmath>
#include <limits>
#include <tuple>

#include "model/reference/reference_backend.hpp"
#include "tests/unit/backend/specs.hpp"
#include "tests/unit/backend/what.hpp"

namespace paceline::testing {

TEST_CASE_TEMPLATE_DEFINE("every head of any segment agrees with the reference backend's",
                          Traits,
                          HeadsAgree) {
    std::mt19937 rng{61};
    const std::tuple<const char*, Dtype, double> settings[] = {
        {"llama-f32", Dtype::F32, 1e-5},         {"llama-f32", Dtype::BF16, 2e-2},
        {"llama-q4_1", Dtype::Auto, 3e-2},       {"llama-untied-f16", Dtype::Auto, 2e-2},
        {"llama-untied-f16", Dtype::Int8, 5e-2},
    };
    for (const auto& [fixture, dtype, tolerance] : settings) {
        const ModelFile file = open_fixture(fixture);
        const std::vector<HeadSpec> heads = all_heads(rng, file.config());
        for (const int first : {0, 1}) {
            const auto backend = Traits::make(file, {.dtype = dtype,
                                                     .first_layer = first,
                                                     .last_layer = first + 1,
                                                     .final_head = true,
                                                     .heads = heads,
                                                     .threads = 2});
            ReferenceBackend plain{file,
                                   {.first_layer = first,
                                    .last_layer = first + 1,
                                    .kv_slots = 32,
                                    .final_head = true,
                                    .heads = heads}};
            const std::vector<float> hidden = random_hidden(rng, 3, file.config().dim);
            for (int head = 0; head <= static_cast<int>(heads.size()); ++head) {
                CAPTURE(fixture);
                CAPTURE(name(dtype));
                CAPTURE(head);
                const auto id = static_cast<HeadId>(head);
                REQUIRE(backend->has_head(id));
                CHECK(worst_error(logits_of(*backend, id, hidden), logits_of(plain, id, hidden)) <
                      tolerance);
            }
        }
    }
}

/// Rows alone, then the first ones of them together on each build of the backend.
template <class Traits>
void check_head_rows(const ModelFile& file, What what, std::span<const float> hidden) {
    const auto dim = static_cast<std::size_t>(file.config().dim);
    const auto vocab = static_cast<std::size_t>(file.config().vocab_size);
    std::vector<std::vector<float>> want;  // by head
    const auto alone = Traits::make(file, what);
    for (std::size_t head = 0; head <= what.heads.size(); ++head) {
        CAPTURE(head);
        const auto id = static_cast<HeadId>(head);
        want.push_back(logits_of(*alone, id, hidden));
        for (std::size_t at = 0; at < hidden.size() / dim; at += Traits::kHeadRowStep) {
            CHECK(same_bits(logits_of(*alone, id, hidden.subspan(at * dim, dim)),
                            std::span(want[head]).subspan(at * vocab, vocab)));
        }
    }
    for (const Build& build : Traits::kBuilds) {
        CAPTURE(build.rows_max);
        CAPTURE(build.threads);
        what.rows_max = build.rows_max;
        what.threads = build.threads;
        const auto together = Traits::make(file, what);
        for (std::size_t head = 0; head < want.size(); ++head) {
            for (const std::size_t rows : Traits::kHeadRows) {
                CAPTURE(head);
                CAPTURE(rows);
                CHECK(same_bits(
                    logits_of(*together, static_cast<HeadId>(head), hidden.first(rows * dim)),
                    std::span(want[head]).first(rows * vocab)));
            }
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "a row's logits have the same bits alone, among others, in chunks and on any number of threads",
    Traits,
    HeadRows) {
    std::mt19937 rng{62};
    const std::pair<const char*, Dtype> settings[] = {{"llama-q4_1", Dtype::Auto},
                                                      {"llama-untied-f16", Dtype::Auto},
                                                      {"llama-f32", Dtype::F32},
                                                      {"mistral-q8_0", Dtype::Int8}};
    for (const auto& [fixture, dtype] : settings) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const std::vector<float> hidden = random_hidden(rng, 66, file.config().dim);
        const std::vector<HeadSpec> heads = all_heads(rng, file.config());
        for (const std::optional<Isa>& isa : Traits::isas()) {
            CAPTURE(static_cast<int>(isa.value_or(Isa::Portable)));
            check_head_rows<Traits>(
                file,
                {.dtype = dtype, .last_layer = 1, .final_head = true, .heads = heads, .isa = isa},
                hidden);
        }
    }
}

/// Of `logits` [rows, vocab_size] the places of `tokens`, row by row.
inline std::vector<float> places_of(std::span<const float> logits,
                                    std::span<const TokenId> tokens,
                                    int vocab_size) {
    std::vector<float> places;
    for (std::size_t row = 0; row < logits.size(); row += static_cast<std::size_t>(vocab_size)) {
        for (const TokenId t : tokens) places.push_back(logits[row + static_cast<std::size_t>(t)]);
    }
    return places;
}

/// head_listed() of a head with a short list.
inline std::vector<float> listed_logits(Backend& backend,
                                        HeadId id,
                                        std::span<const float> hidden) {
    const std::size_t rows = hidden.size() / static_cast<std::size_t>(backend.config().dim);
    std::vector<float> listed(rows * backend.short_list(id).size());
    backend.head_listed(id, hidden, static_cast<int>(rows), listed);
    return listed;
}

TEST_CASE_TEMPLATE_DEFINE(
    "a short list gives the final head's own bits for its tokens and -inf for the others",
    Traits,
    ShortLists) {
    std::mt19937 rng{63};
    for (const char* fixture : {"llama-q4_1", "llama-f32", "llama-q4_0", "mistral-q8_0"}) {
        CAPTURE(fixture);
        const ModelFile file = open_fixture(fixture);
        const int vocab_size = file.config().vocab_size;
        const std::vector<TokenId> tokens = random_list(rng, vocab_size);
        const auto backend =
            Traits::make(file, {.heads = {{.tokens = tokens}}, .rows_max = 4, .threads = 2});
        const std::vector<float> hidden = random_hidden(rng, 9, file.config().dim);
        const std::vector<float> all = logits_of(*backend, HeadId::Final, hidden);
        std::vector<float> want(all.size(), -std::numeric_limits<float>::infinity());
        for (std::size_t row = 0; row < all.size(); row += static_cast<std::size_t>(vocab_size)) {
            for (const TokenId t : tokens)
                want[row + static_cast<std::size_t>(t)] = all[row + static_cast<std::size_t>(t)];
        }
        CHECK(same_bits(logits_of(*backend, HeadId{1}, hidden), want));
        REQUIRE(std::ranges::equal(backend->short_list(HeadId{1}), tokens));
        CHECK(same_bits(listed_logits(*backend, HeadId{1}, hidden),
                        places_of(all, tokens, vocab_size)));
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "the heads that a segment has are those it was given, and its layers do not change",
    Traits,
    HeadsGiven) {
    std::mt19937 rng{64};
    const ModelFile file = open_fixture("llama-untied-f16");
    const auto bare = Traits::make(file, {.last_layer = 1});
    CHECK_FALSE(bare->has_head(HeadId::Final));
    CHECK_FALSE(bare->has_head(HeadId{1}));
    CHECK_FALSE(bare->has_adapter());
    const auto lens = Traits::make(file, {.last_layer = 1, .final_head = true});
    CHECK(lens->has_head(HeadId::Final));
    CHECK_FALSE(lens->has_head(HeadId{1}));
    const auto listed = Traits::make(file, {.last_layer = 1, .heads = {{.tokens = {1, 5}}}});
    CHECK_FALSE(listed->has_head(HeadId::Final));
    CHECK(listed->has_head(HeadId{1}));
    CHECK_FALSE(listed->has_head(HeadId{2}));
    const auto all = Traits::make(
        file, {.last_layer = 1, .final_head = true, .heads = all_heads(rng, file.config())});
    CHECK(all->has_head(HeadId::Final));
    CHECK(all->has_head(HeadId{8}));
    CHECK_FALSE(all->has_head(HeadId{9}));
    const std::vector<float> want = states_of(*bare, Text{*bare, 9}.rows);
    for (Backend* with : {lens.get(), listed.get(), all.get()}) {
        CHECK(with->equality_class() == bare->equality_class());
        CHECK(same_bits(states_of(*with, Text{*with, 9}.rows), want));
    }
}

TEST_CASE_TEMPLATE_DEFINE("heads that make no sense are refused with field and value in the text",
                          Traits,
                          HeadsRefused) {
    const ModelFile file = open_fixture("llama-q4_1");
    const int vocab = file.config().vocab_size;
    const auto refused = [&](HeadSpec spec, const std::string& part) {
        const Error error = Traits::refused(file, {.heads = {HeadSpec{}, std::move(spec)}});
        CHECK(error.code == Errc::BadArgument);
        CHECK_MESSAGE(error.what.find(part) != std::string::npos, error.what);
    };
    refused({.transform = {1.0f, 2.0f}}, "heads[1].transform has 2 numbers");
    refused({.tokens = {4, -1}}, "heads[1].tokens[1] = -1");
    refused({.tokens = {vocab}}, "heads[1].tokens[0] = " + std::to_string(vocab));
    refused({.tokens = {4, 4}}, "heads[1].tokens[1] = 4, must be above");
    refused({.tokens = {9, 4}}, "heads[1].tokens[1] = 4, must be above the one before it (9)");
    std::vector<float> broken(static_cast<std::size_t>(file.config().dim) *
                              static_cast<std::size_t>(file.config().dim));
    broken[7] = std::nanf("");
    refused({.transform = broken}, "heads[1].transform[7] is not a finite number");
    refused({.block = HeadBlock::Residual}, "heads[1].block = residual, must have a transform");
    broken[7] = 0.0f;
    refused({.transform = broken, .norm_first = false, .block = HeadBlock::Residual},
            "and the norm first");
}

}  // namespace paceline::testing
