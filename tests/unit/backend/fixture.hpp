// What the cases of all backends share: fixtures, numbers at random, rows of a text and what comes
// of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "model/backend.hpp"
#include "model/weights/model_file.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/support/parity.hpp"

namespace paceline::testing {

inline std::vector<TokenId> random_tokens(std::mt19937& rng, int vocab_size, std::size_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens)
        token = static_cast<TokenId>(rng() % static_cast<unsigned>(vocab_size));
    return tokens;
}

inline std::vector<float> normal_numbers(std::mt19937& rng,
                                         std::size_t count,
                                         float mean,
                                         float spread) {
    std::normal_distribution<float> normal(mean, spread);
    std::vector<float> numbers(count);
    for (float& x : numbers) x = normal(rng);
    return numbers;
}

/// Hidden states of `rows` rows, as large as those of a model.
inline std::vector<float> random_hidden(std::mt19937& rng, std::size_t rows, int dim) {
    return normal_numbers(rng, rows * static_cast<std::size_t>(dim), 0.0f, 2.0f);
}

/// Rows of the positions from `begin` on. `slots` must outlive them.
inline std::vector<Row> text_rows(const Backend& backend,
                                  std::span<const TokenId> tokens,
                                  std::span<const KvSlot> slots,
                                  Position begin = 0) {
    std::vector<Row> rows;
    for (Position p = begin; p < std::ssize(tokens); ++p)
        rows.push_back(sequence_row(backend, tokens[static_cast<std::size_t>(p)], p, slots));
    return rows;
}

/// Hidden states [rows, dim] after the rows' last sub-layers; all rows start at sub-layer 0.
inline std::vector<float> states_of(Backend& backend, std::span<const Row> rows) {
    std::vector<float> hidden(rows.size() * static_cast<std::size_t>(backend.config().dim));
    REQUIRE(backend.run_layers(rows, hidden, nullptr) == RunOutcome::Done);
    return hidden;
}

/// Logits [rows, vocab_size] of hidden states.
inline std::vector<float> logits_of(Backend& backend, HeadId head, std::span<const float> hidden) {
    const int rows = static_cast<int>(hidden.size()) / backend.config().dim;
    std::vector<float> logits(static_cast<std::size_t>(rows) *
                              static_cast<std::size_t>(backend.config().vocab_size));
    backend.head(head, hidden, rows, logits);
    return logits;
}

/// The largest error over the largest number; -inf must stand at the same places.
inline double worst_error(std::span<const float> got, std::span<const float> want) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    REQUIRE(got.size() == want.size());
    double largest = 0.0;
    double error = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (std::isinf(want[i]) && want[i] == got[i]) continue;
        if (!std::isfinite(want[i]) || !std::isfinite(got[i])) return kInfinity;
        largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
        error = std::max(error, std::fabs(static_cast<double>(got[i]) - want[i]));
    }
    return error / largest;
}

/// Rows of one sequence through the layers of a backend. Owns slots, rows and hidden states; rows
/// point to the slots.
struct Text {
    std::vector<KvSlot> slots;
    std::vector<Row> rows;
    std::vector<float> hidden;

    /// Texts with different `first` tokens have different keys at every position.
    Text(const Backend& backend, Position count, TokenId first = 1)
        : slots{home_slots(static_cast<std::size_t>(count))} {
        for (Position p = 0; p < count; ++p)
            rows.push_back(sequence_row(backend, first + p % 100, p, slots));
        hidden.resize(rows.size() * static_cast<std::size_t>(backend.config().dim));
    }
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;
    RunOutcome run(Backend& backend, const CancelToken* cancel = nullptr) {
        return backend.run_layers(rows, hidden, cancel);
    }
};

/// Keys and values of each slot, as they are in the cache.
inline std::vector<std::vector<std::byte>> kv_of(const Backend& backend,
                                                 std::span<const KvSlot> slots) {
    std::vector<std::vector<std::byte>> all;
    for (const KvSlot slot : slots) {
        all.emplace_back(backend.kv_bytes());
        backend.read_kv(slot, all.back());
    }
    return all;
}

}  // namespace paceline::testing
