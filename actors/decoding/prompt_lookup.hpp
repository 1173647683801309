// PromptLookup: guesses from the text itself. If its last n tokens stood there before, what
// followed them then is proposed again.
//
// The longest n wins (max_ngram down to min_ngram), since more context makes a better guess;
// among equals the latest place wins, since text repeats what is near (the variable just named,
// the loop just entered). A match that runs into the end of the text goes on with what it has
// proposed itself, so a loop of any period is guessed for the whole length.
//
// Incremental: a token costs one table insertion per n, a proposal one lookup per n, whatever
// the length of the text. Not thread-safe. Bounded by the text: one entry per token and n.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

struct NgramRange {
    int min_ngram = 2;
    int max_ngram = 4;
};
inline constexpr int kNgramMax = 16;

class PromptLookup {
public:
    /// Errors: BadArgument unless 1 <= min_ngram <= max_ngram <= kNgramMax.
    static Result<PromptLookup> make(NgramRange range);

    void append(std::span<const TokenId> tokens);
    /// Up to `gamma` tokens behind the text and then `path`; empty when no n-gram of that end
    /// stood in the text before.
    [[nodiscard]] std::vector<TokenId> propose(std::int32_t gamma,
                                               std::span<const TokenId> path = {}) const;
    [[nodiscard]] std::span<const TokenId> text() const { return text_; }

private:
    /// Places where n-grams of one length end, newest first per hash.
    struct Index {
        int n = 0;
        std::unordered_map<std::uint64_t, std::int32_t> newest;  // hash -> end of the n-gram
        std::vector<std::int32_t> older;  // end -> the end before it with the same hash, or -1
    };

    explicit PromptLookup(NgramRange range);
    [[nodiscard]] std::int32_t latest_match(const Index& index,
                                            std::span<const TokenId> path) const;

    std::vector<TokenId> text_;
    std::vector<Index> indices_;  // longest n first
};

}  // namespace paceline
