#include "bench/parity/backend_pair.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::parity {

PairResult compare(
    Backend& got, Backend& want, std::span<const TokenId> tokens, int batch_rows, double tie) {
    const int vocab = want.config().vocab_size;
    const auto width = static_cast<std::size_t>(vocab);
    const std::vector<float> theirs = testing::sequence_logits(want, tokens, batch_rows);
    const std::vector<float> ours = testing::sequence_logits(got, tokens, batch_rows);
    const std::vector<TokenId> wanted = testing::argmax_of_rows(theirs, vocab);
    const std::vector<TokenId> found = testing::argmax_of_rows(ours, vocab);
    PairResult result;
    result.worst = testing::deviation(ours, theirs, vocab);
    result.rows = static_cast<int>(tokens.size());
    for (std::size_t r = 0; r < wanted.size(); ++r) {
        if (wanted[r] == found[r]) continue;
        ++result.differing;
        const std::span<const float> row = std::span{theirs}.subspan(r * width, width);
        const float greatest = std::abs(*std::max_element(
            row.begin(), row.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
        const float gap =
            row[static_cast<std::size_t>(wanted[r])] - row[static_cast<std::size_t>(found[r])];
        const double relative = static_cast<double>(gap) / static_cast<double>(greatest);
        result.widest_tie = std::max(result.widest_tie, relative);
        if (!(relative <= tie) && result.first_beyond_tie < 0)
            result.first_beyond_tie = static_cast<int>(r);
    }
    return result;
}

}  // namespace paceline::parity
