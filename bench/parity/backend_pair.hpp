// Two backends on the same model and text: how far apart their logits are, and whether greedy
// decoding says the same.
#pragma once

#include <span>
#include <vector>

#include "model/backend.hpp"
#include "tests/support/parity.hpp"

namespace paceline::parity {

struct PairResult {
    testing::Deviation worst;
    int rows = 0;
    int differing = 0;          // rows whose greedy ids differ
    double widest_tie = 0.0;    // of those: how far apart `want`'s two ids are, relative to its row
    int first_beyond_tie = -1;  // a row where they differ by more than the tie allows; -1: none
};

/// Feeds `tokens` to both in batches of `batch_rows`. Ids that differ are a tie if `want`'s logits
/// of both are within `tie` of each other, relative to the row's greatest.
[[nodiscard]] PairResult compare(
    Backend& got, Backend& want, std::span<const TokenId> tokens, int batch_rows, double tie);

}  // namespace paceline::parity
