// HitRates: how often a candidate is right if all candidates above it are, by source and by what
// its proposer believes.
//
//     P(right | parents right) = estimate x ratio        ratio: hits / sum of the estimates
//
// of candidates of the same source with a similar estimate. A proposer's own estimates are biased:
// a greedy draft is overconfident after doubtful tokens; with a temperature the estimate measures
// the lead of a token under the draft's own noise, about twice too high. Old observations fade
// (kMemory), so a change of the text shows. Learned from all candidates below committed parents,
// also from those that were not sent: sent ones alone would be a biased sample.
// Not thread-safe. Pure.
#pragma once

#include <array>
#include <cstddef>

#include "ipc/wire/messages.hpp"

namespace paceline {

/// Who proposed a candidate, and for which kind of text.
struct HitSource {
    msg::Origin origin = msg::Origin::Trunk;
    bool drawn = false;  // the text has a temperature
};

class HitRates {
public:
    static constexpr double kMemory = 96.0;      // observations of one kind that count
    static constexpr double kPriorWeight = 4.0;  // of the prior, in observations
    static constexpr double kDrawnRatio = 0.6;   // prior ratio of texts with a temperature
    static constexpr double kUnknownRate = 0.5;  // of a source of which nothing is known
    static constexpr double kProbeMemory = 6.0;  // what a probe leaves of older observations
    static constexpr double kProbabilityMax = 0.995;

    /// A candidate with this estimate, below a committed parent, was right or not.
    void learn(HitSource source, float log_prob, bool right);
    /// The probability that a candidate is right if its parents are.
    [[nodiscard]] double expected(HitSource source, float log_prob) const;
    /// The same, before the candidate is known.
    [[nodiscard]] double mean(HitSource source) const;
    /// Observations of a source that count.
    [[nodiscard]] double tries(HitSource source) const;
    /// A probe of these sources begins: older observations count little from now on.
    void shorten_memory();

private:
    static constexpr std::size_t kBuckets = 8;
    struct Cell {
        double tries = 0.0;
        double hits = 0.0;
        double estimates = 0.0;  // sum of the estimates

        void scale(double factor);
    };
    using Cells = std::array<Cell, kBuckets + 1>;  // the last one: of the whole source

    [[nodiscard]] static std::size_t bucket_of(double estimate);
    [[nodiscard]] static std::size_t index_of(HitSource source);

    std::array<Cells, std::size_t{2} * msg::kOrigins> sources_{};
};

}  // namespace paceline
