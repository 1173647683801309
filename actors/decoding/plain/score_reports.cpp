#include "actors/decoding/plain/score_reports.hpp"

#include <algorithm>

namespace paceline {

void ScoreReports::prompt(PlainPasses& passes,
                          std::span<const TokenId> text,
                          Position first,
                          Position end,
                          std::int32_t top,
                          SamplerScratch& scratch) {
    const auto vocab = static_cast<std::size_t>(passes.model().vocab_size);
    logits_.resize(kRows * vocab);
    end = std::min(end, static_cast<Position>(text.size()) - 1);
    for (Position row = first; row < end; row += static_cast<Position>(kRows)) {
        const auto count = std::min(kRows, static_cast<std::size_t>(end - row));
        passes.head(static_cast<std::size_t>(row - first), count,
                    std::span{logits_}.first(count * vocab));
        for (std::size_t i = 0; i < count; ++i) {
            const Position next = row + static_cast<Position>(i) + 1;
            read(std::span{logits_}.subspan(i * vocab, vocab), top, scratch);
            report(next, text[static_cast<std::size_t>(next)]);
        }
    }
}

}  // namespace paceline
