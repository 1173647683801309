// SkipSearch: SWIFT's search for the set of sub-layers that a draft skips, while it decodes
// (SWIFT, section 4.2; Draft & Verify searches the same way beforehand).
//
//     propose()    a set with as many skipped sub-layers as `ratio` says: at random, and every
//                  bayes_every-th one by Bayesian optimisation (Gaussian process, upper confidence
//                  bound)
//     judged()     how often the trial and the best set predicted the tokens of the same window
//                  (matchness); the trial is the best set from then on if it was strictly better
//
//     [Searching] -- matchness_stop, trials_max, or no better set in `tolerance` trials --> [Done]
//         ^                                                                                   |
//         +------------- adjusted: the ratio was lowered, earlier trials are dropped ---------+
//
// It begins with SkipSet::uniform. The first `keep_first` and last `keep_last` layers are never
// skipped. State is kept across requests; encode() and restore() move it to disk and back. A
// restored search proposes what the encoded one would have proposed.
// Memory: the newest kObservationsMax trials.
// Pure: chance comes from the seed. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/self_draft/gaussian_process.hpp"
#include "ipc/base/result.hpp"
#include "model/skip_set.hpp"

namespace paceline {

struct SkipSearchOptions {
    int layers = 0;
    double ratio = 0.45;  // of the sub-layers that may be skipped
    int keep_first = 1;
    int keep_last = 1;
    int bayes_every = 25;   // beta; 0: random search alone
    int trials_max = 1000;  // S
    int tolerance = 300;    // trials without a better set
    double matchness_stop = 0.95;
    double acceptance_min = 0.7;  // below it the ratio is lowered; 0: never
    std::uint64_t seed = 1;
};

class SkipSearch {
public:
    static constexpr std::size_t kObservationsMax = 128;
    static constexpr double kKappa = 2.5;  // deviations that are added to an expected value
    static constexpr double kRatioStep = 0.05;
    static constexpr double kRatioLeast = 0.05;
    static constexpr int kVerdictsToAdjust = 64;  // since it was done
    static constexpr double kNewVerdict = 0.05;   // weight in the running mean of accepted tokens

    explicit SkipSearch(const SkipSearchOptions& options);

    [[nodiscard]] const SkipSet& best() const { return best_; }
    /// Whether there is more than one set of so many sub-layers.
    [[nodiscard]] bool has_choice() const;
    /// Always false without a choice.
    [[nodiscard]] bool searching() const;
    /// Preconditions: searching().
    [[nodiscard]] SkipSet propose();
    /// Both were measured on the same window; in [0, 1].
    void judged(const SkipSet& trial, double trial_matchness, double best_matchness);
    /// A verdict: so many of the drafted tokens were accepted. From kVerdictsToAdjust verdicts
    /// after it is done, a running mean of the accepted share below acceptance_min lowers the ratio
    /// by kRatioStep; the search begins anew, from the best set without some of its sub-layers.
    void verified(int accepted, int drafted);

    [[nodiscard]] double ratio() const { return ratio_; }
    /// Of best(), as measured last; 0: not yet.
    [[nodiscard]] double matchness() const { return matchness_; }
    /// Since it began or began anew.
    [[nodiscard]] int trials() const { return trials_; }

    /// JSON.
    [[nodiscard]] std::string encode() const;
    /// Takes over what encode() gave, the seed too. Errors: BadFile naming the field; a state of
    /// other layers, bounds or ratio. Nothing is changed then. The text names no file: the caller
    /// has it.
    [[nodiscard]] Status restore(std::string_view text);

private:
    class Draws;

    [[nodiscard]] int skippable() const;
    [[nodiscard]] int wanted_count() const;  // sub-layers that a set of this ratio skips
    [[nodiscard]] SkipSet random_set(Draws& draws) const;
    [[nodiscard]] SkipSet swapped(SkipSet set, int swaps, Draws& draws) const;
    [[nodiscard]] SkipSet suggest(Draws& draws) const;
    [[nodiscard]] bool known(const SkipSet& set) const;
    void lower_ratio();

    SkipSearchOptions options_;
    double ratio_;
    SkipSet best_;
    double matchness_ = 0.0;
    int trials_ = 0;
    int since_better_ = 0;        // trials
    std::int64_t proposals_ = 0;  // ever made: each has its own random numbers
    double accepted_ = 0.0;       // fading sums of tokens
    double drafted_ = 0.0;
    int verdicts_ = 0;                    // since it was done
    std::vector<SetValue> observations_;  // the newest trials, the oldest first
};

}  // namespace paceline
