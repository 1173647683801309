// PromptLookup: candidates from the text itself. If its last n tokens occurred earlier, the tokens
// that followed them there are proposed.
//
// The longest match wins (max_ngram down to min_ngram), because more context predicts better; among
// equals the latest, because text tends to repeat recent parts. A match that reaches the end of the
// text continues with its own candidates, so a repetition of any period is proposed in full length.
//
// Each token has a probability: how often matches of that length were right lately in this text;
// until there is enough data, in texts that were measured beforehand. Every appended token counts,
// proposed or not, so a match length that was too improbable to be sent is used again once it would
// have been right. A pure function of the text.
//
// Incremental: a token costs one table insertion and at most kPlacesMax comparisons.
// Not thread-safe. Bounded by the text: two entries per token.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/sampling/candidates.hpp"

namespace paceline {

inline constexpr int kNgramMax = 16;
struct NgramRange {
    int min_ngram = 1;
    int max_ngram = kNgramMax;
};

class PromptLookup {
public:
    static constexpr int kPlacesMax = 256;  // that are looked at, the latest ones

    /// Errors: BadArgument unless 1 <= min_ngram <= max_ngram <= kNgramMax.
    static Result<PromptLookup> make(NgramRange range);

    void append(std::span<const TokenId> tokens);
    /// Up to `gamma` tokens after the text and then `path`; empty when no n-gram of that end
    /// stood in the text before. log_prob: of each if those before it are right.
    [[nodiscard]] std::vector<Candidate> propose(std::int32_t gamma,
                                                 std::span<const TokenId> path = {}) const;
    [[nodiscard]] std::span<const TokenId> text() const { return text_; }

    /// How probable the token after a match of this length is.
    [[nodiscard]] float confidence(int length) const;

private:
    struct Match {
        std::size_t end = 0;  // of the n-gram: what stands there followed it
        int length = 0;       // 0: there is none
    };
    /// Of matches of about one length: how many there were and were right, the older the less.
    struct Record {
        float seen = 0.0F;
        float right = 0.0F;
    };
    static constexpr std::size_t kGroups = 9;

    explicit PromptLookup(NgramRange range) : range_{range} {}
    [[nodiscard]] Match longest_match(std::span<const TokenId> path) const;
    [[nodiscard]] static std::size_t group_of(int length);

    NgramRange range_;
    std::vector<TokenId> text_;
    std::unordered_map<std::uint64_t, std::int32_t> newest_;  // hash of min_ngram tokens -> their
                                                              // end
    std::vector<std::int32_t> older_;  // end -> the end before it with the same hash, or -1
    std::array<Record, kGroups> records_{};
};

}  // namespace paceline
