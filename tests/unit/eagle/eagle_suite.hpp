// The cases of EagleBackend, for a layer on the host and on a GPU: the formulas against a plain
// reference, steps, trees, and what a slot's feature is.
//
// Traits of a place where the layer computes:
//
//     make(eagle, options)    an EagleBackend of a fixture's part; of CpuOptions those that it has
//     kTokens, kLongTokens    of a text that is compared with the reference; cut into calls
//     kFixtures               whose rows have equal bits in calls of any size
#pragma once

#include <memory>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/eagle/eagle_fixture.hpp"

namespace paceline::testing {

/// Gives what is known of the first `known` positions, each of which is in slots[p].
inline void give(EagleBackend& backend,
                 const std::vector<KvSlot>& slots,
                 const std::vector<std::vector<float>>& states,
                 std::size_t known) {
    for (std::size_t p = 0; p < known; ++p) {
        if (!states[p].empty()) backend.give(slots[p], states[p]);
    }
}

inline std::vector<float> row_of(const std::vector<float>& states, std::size_t row, int dim) {
    const auto width = static_cast<std::size_t>(dim);
    const auto begin = states.begin() + static_cast<std::ptrdiff_t>(row * width);
    return {begin, begin + dim};
}

TEST_CASE_TEMPLATE_DEFINE(
    "an EAGLE draft agrees with its plain reference, with all, some and none of the features",
    Traits,
    EagleAgrees) {
    for (const std::vector<int>& layers : {std::vector<int>{}, {1, 2}}) {
        const EagleFixture eagle{"llama-f32", layers};
        std::mt19937 random{11};
        const std::vector<TokenId> tokens =
            random_tokens(random, eagle.target.config().vocab_size, Traits::kTokens);
        for (const unsigned one_in : {1U, 2U, 0U}) {
            CAPTURE(one_in);
            CAPTURE(layers.size());
            const auto states = eagle.some_states(random, tokens.size(), one_in);
            const std::vector<float> want = eagle.plain(tokens, states);
            const auto backend = Traits::make(eagle, {.dtype = Dtype::F32, .kv = KvType::F32});
            const std::vector<KvSlot> slots = scattered_slots(tokens.size(), 1024);
            give(*backend, slots, states, tokens.size());
            const std::vector<float> got = states_of(*backend, text_rows(*backend, tokens, slots));
            CHECK(worst_error(got, want) < 5e-4);
            CHECK((backend->steps() == 1) == (one_in == 1));
            CHECK((backend->steps() == static_cast<int>(Traits::kTokens)) == (one_in == 0));
            // The features make a difference: a reference without them says something else.
            const std::vector<float> without = eagle.plain(tokens, {});
            CHECK((worst_error(without, want) > 1e-2) == (one_in != 0));
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "rows of an EAGLE draft have the same bits in one call and in calls of any size",
    Traits,
    EagleRows) {
    for (const char* name : Traits::kFixtures) {
        CAPTURE(name);
        const EagleFixture eagle{name};
        std::mt19937 random{12};
        const std::vector<TokenId> tokens =
            random_tokens(random, eagle.target.config().vocab_size, Traits::kLongTokens);
        const std::vector<KvSlot> slots = home_slots(tokens.size());
        const auto states = eagle.some_states(random, tokens.size(), 2);
        const auto whole = Traits::make(eagle, {.threads = 2});
        give(*whole, slots, states, tokens.size());
        const std::vector<float> want = states_of(*whole, text_rows(*whole, tokens, slots));
        CHECK(whole->steps() > static_cast<int>(Traits::kLongTokens) / 6);
        CHECK(whole->steps() < static_cast<int>(Traits::kLongTokens));
        for (const std::size_t at_once : {1U, 7U, 33U}) {
            CAPTURE(at_once);
            const auto backend = Traits::make(eagle, {.rows_max = 16});
            give(*backend, slots, states, tokens.size());
            const std::vector<Row> rows = text_rows(*backend, tokens, slots);
            std::vector<float> got;
            for (std::size_t first = 0; first < rows.size(); first += at_once) {
                const std::size_t count = std::min(at_once, rows.size() - first);
                const auto more = states_of(*backend, std::span{rows}.subspan(first, count));
                got.insert(got.end(), more.begin(), more.end());
            }
            CHECK(same_bits(got, want));
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE("in a tree each row reads the output of the row before it on its path",
                          Traits,
                          EagleTrees) {
    const EagleFixture eagle{"llama-q4_1"};
    std::mt19937 random{13};
    const int vocab = eagle.target.config().vocab_size;
    const std::vector<TokenId> text = random_tokens(random, vocab, 20);
    const std::vector<KvSlot> slots = home_slots(text.size());
    const auto states = eagle.some_states(random, text.size(), 1);
    const auto tree = Traits::make(eagle, {});
    give(*tree, slots, states, text.size());
    (void)states_of(*tree, text_rows(*tree, text, slots));
    // Two children of the last token, and two grandchildren below the second.
    const std::vector<std::vector<KvSlot>> paths{{100}, {101}, {101, 102}, {101, 103}};
    const std::vector<TokenId> tokens = random_tokens(random, vocab, paths.size());
    std::vector<Row> rows;
    for (std::size_t i = 0; i < paths.size(); ++i) {
        rows.push_back({.token = tokens[i],
                        .position = static_cast<Position>(text.size() + paths[i].size()) - 1,
                        .slot = paths[i].back(),
                        .prefix_slots = slots.data(),
                        .prefix_count = static_cast<std::int32_t>(text.size()),
                        .path_slots = paths[i].data(),
                        .path_count = static_cast<std::int32_t>(paths[i].size()),
                        .last = 2});
    }
    const std::vector<float> got = states_of(*tree, rows);
    CHECK(tree->steps() == 2);
    const std::vector<std::vector<std::size_t>> along{{0}, {1}, {1, 2}, {1, 3}};
    for (std::size_t i = 0; i < along.size(); ++i) {
        CAPTURE(i);
        std::vector<TokenId> path = text;
        for (const std::size_t node : along[i]) path.push_back(tokens[node]);
        const auto chain = Traits::make(eagle, {});
        const std::vector<KvSlot> places = home_slots(path.size());
        give(*chain, places, states, text.size());
        const std::vector<float> want = states_of(*chain, text_rows(*chain, path, places));
        CHECK(same_bits(row_of(got, i, eagle.target.config().dim),
                        row_of(want, path.size() - 1, eagle.target.config().dim)));
    }
}

TEST_CASE_TEMPLATE_DEFINE(
    "a slot's feature is the bits that were given, until the slot gets another token",
    Traits,
    EagleFeatures) {
    const EagleFixture eagle{"llama-f32"};
    std::mt19937 random{14};
    const std::vector<TokenId> tokens = random_tokens(random, eagle.target.config().vocab_size, 3);
    const std::vector<KvSlot> slots{5, 9, 2};
    const auto backend = Traits::make(eagle, {});
    FeatureSlots& features = *backend->feature_slots();
    const int dim = eagle.target.config().dim;
    REQUIRE(features.width() == static_cast<std::size_t>(dim));
    const std::vector<float> state = normal_numbers(random, features.width(), 0.0F, 1.0F);
    features.give(9, state);
    CHECK(features.given(9));
    const std::vector<float> outputs = states_of(*backend, text_rows(*backend, tokens, slots));
    CHECK(same_bits(features.feature(9), state));
    CHECK(same_bits(features.feature(5), row_of(outputs, 0, dim)));
    features.forget(9);
    CHECK_FALSE(features.given(9));
    const std::vector<float> again = states_of(*backend, text_rows(*backend, tokens, slots));
    CHECK(same_bits(features.feature(9), row_of(again, 1, dim)));
    CHECK(same_bits(row_of(again, 1, dim), row_of(outputs, 1, dim)));        // it does not read it
    CHECK_FALSE(same_bits(row_of(again, 2, dim), row_of(outputs, 2, dim)));  // this one does
}

TEST_CASE_TEMPLATE_DEFINE("a cancelled call of an EAGLE draft ends between two steps",
                          Traits,
                          EagleCancelled) {
    const EagleFixture eagle{"llama-f32"};
    const std::vector<TokenId> tokens{1, 2, 3};
    const std::vector<KvSlot> slots = home_slots(tokens.size());
    const auto backend = Traits::make(eagle, {});
    CancelToken cancel;
    cancel.cancel();
    std::vector<float> hidden(tokens.size() * static_cast<std::size_t>(eagle.target.config().dim));
    CHECK(backend->run_layers(text_rows(*backend, tokens, slots), hidden, &cancel) ==
          RunOutcome::Cancelled);
    cancel.reset();
    CHECK(backend->run_layers(text_rows(*backend, tokens, slots), hidden, &cancel) ==
          RunOutcome::Done);
}

}  // namespace paceline::testing
