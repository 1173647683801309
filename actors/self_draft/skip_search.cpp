#include "actors/self_draft/skip_search.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "model/sampling/counter_rng.hpp"

namespace paceline {
namespace {

// Candidates of a Bayesian proposal.
constexpr int kRandomCandidates = 160;
constexpr int kNearCandidates = 120;  // one to three swaps from the best set
constexpr int kClimbs = 4;            // then from the most promising one, a swap at a time
constexpr int kClimbCandidates = 40;

}  // namespace

/// The random numbers of one proposal: a function of the seed and of its number.
class SkipSearch::Draws {
public:
    Draws(std::uint64_t seed, std::int64_t proposal)
        : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          proposal_{static_cast<std::uint64_t>(proposal)} {}

    /// In [0, bound).
    [[nodiscard]] int below(int bound) {
        if (next_ == words_.size()) {
            words_ = philox({static_cast<std::uint32_t>(proposal_),
                             static_cast<std::uint32_t>(proposal_ >> 32), block_++, kPurpose},
                            key_);
            next_ = 0;
        }
        const std::uint64_t scaled =
            std::uint64_t{words_[next_++]} * static_cast<std::uint64_t>(bound);
        return static_cast<int>(scaled >> 32);
    }

private:
    static constexpr std::uint32_t kPurpose = 0x53574946;  // apart from other uses of a seed

    PhiloxKey key_;
    std::uint64_t proposal_;
    std::uint32_t block_ = 0;
    PhiloxCounter words_{};
    std::size_t next_ = words_.size();
};

SkipSearch::SkipSearch(const SkipSearchOptions& options)
    : options_{options}, ratio_{options.ratio}, best_{options.layers} {
    PACE_CHECK(options.layers > 0 && options.keep_first >= 0 && options.keep_last >= 0,
               "a search over a model without layers");
    best_ = SkipSet::uniform(options.layers, wanted_count(), options.keep_first, options.keep_last);
}

int SkipSearch::skippable() const {
    return std::max(0, 2 * (options_.layers - options_.keep_first - options_.keep_last));
}

int SkipSearch::wanted_count() const {
    return skipped_of(ratio_, skippable());
}

bool SkipSearch::has_choice() const {
    const int count = wanted_count();
    return count > 0 && count < skippable();
}

bool SkipSearch::searching() const {
    return has_choice() && matchness_ < options_.matchness_stop &&
           since_better_ < options_.tolerance && trials_ < options_.trials_max;
}

SkipSet SkipSearch::propose() {
    PACE_CHECK(searching(), "a proposal of a search that has ended");
    Draws draws{options_.seed, proposals_};
    ++proposals_;
    const bool bayes = options_.bayes_every > 0 && proposals_ % options_.bayes_every == 0;
    return bayes && observations_.size() > 1 ? suggest(draws) : random_set(draws);
}

void SkipSearch::judged(const SkipSet& trial, double trial_matchness, double best_matchness) {
    PACE_CHECK(trial.layers() == options_.layers, "a trial of a model of other depth");
    PACE_CHECK(trial_matchness >= 0.0 && trial_matchness <= 1.0 && best_matchness >= 0.0 &&
                   best_matchness <= 1.0,
               "a matchness outside [0, 1]");
    ++trials_;
    ++since_better_;
    matchness_ = best_matchness;
    if (trial_matchness > best_matchness) {
        best_ = trial;
        matchness_ = trial_matchness;
        since_better_ = 0;
    }
    if (observations_.size() == kObservationsMax) observations_.erase(observations_.begin());
    observations_.push_back({trial, trial_matchness});
}

void SkipSearch::verified(int accepted, int drafted) {
    if (drafted <= 0) return;
    accepted_ += accepted - kNewVerdict * accepted_;
    drafted_ += drafted - kNewVerdict * drafted_;
    if (searching()) {
        verdicts_ = 0;
        return;
    }
    if (++verdicts_ < kVerdictsToAdjust) return;
    verdicts_ = kVerdictsToAdjust;  // enough is known from here on
    if (accepted_ < options_.acceptance_min * drafted_) lower_ratio();
}

void SkipSearch::lower_ratio() {
    if (ratio_ - kRatioStep < kRatioLeast - 1e-9) return;
    ratio_ -= kRatioStep;
    verdicts_ = 0;
    int surplus = best_.count() - wanted_count();
    if (surplus <= 0) return;  // a few sub-layers only: the same sets as before
    Draws draws{options_.seed, proposals_};
    ++proposals_;
    while (surplus > 0) {
        const int sublayer = 2 * options_.keep_first + draws.below(skippable());
        surplus -= best_.skips(sublayer) ? 1 : 0;
        best_.set(sublayer, false);
    }
    matchness_ = 0.0;
    trials_ = 0;
    since_better_ = 0;
    accepted_ = 0.0;
    drafted_ = 0.0;
    observations_.clear();
}

SkipSet SkipSearch::random_set(Draws& draws) const {
    SkipSet set{options_.layers};
    std::vector<int> sublayers(static_cast<std::size_t>(skippable()));
    std::iota(sublayers.begin(), sublayers.end(), 2 * options_.keep_first);
    for (int left = wanted_count(); left > 0; --left) {
        const int at = draws.below(static_cast<int>(sublayers.size()));
        std::swap(sublayers[static_cast<std::size_t>(at)], sublayers.back());
        set.set(sublayers.back(), true);
        sublayers.pop_back();
    }
    return set;
}

SkipSet SkipSearch::swapped(SkipSet set, int swaps, Draws& draws) const {
    std::vector<int> in;
    std::vector<int> out;
    for (int i = 0; i < skippable(); ++i) {
        const int sublayer = 2 * options_.keep_first + i;
        (set.skips(sublayer) ? in : out).push_back(sublayer);
    }
    for (; swaps > 0 && !in.empty() && !out.empty(); --swaps) {
        int& leaves = in[static_cast<std::size_t>(draws.below(static_cast<int>(in.size())))];
        int& enters = out[static_cast<std::size_t>(draws.below(static_cast<int>(out.size())))];
        set.set(leaves, false);
        set.set(enters, true);
        std::swap(leaves, enters);
    }
    return set;
}

bool SkipSearch::known(const SkipSet& set) const {
    return set == best_ || std::any_of(observations_.begin(), observations_.end(),
                                       [&](const SetValue& each) { return each.set == set; });
}

SkipSet SkipSearch::suggest(Draws& draws) const {
    const GaussianProcess process{observations_};
    SkipSet pick;
    double most = 0.0;
    // The most promising candidate that was not tried yet, if it is more so than the present pick.
    const auto consider = [&](const std::vector<SkipSet>& candidates) {
        const std::vector<GaussianProcess::Belief> beliefs = process.expect(candidates);
        for (std::size_t c = 0; c < candidates.size(); ++c) {
            const double bound = beliefs[c].mean + kKappa * beliefs[c].deviation;
            if ((pick.layers() > 0 && bound <= most) || known(candidates[c])) continue;
            pick = candidates[c];
            most = bound;
        }
    };
    std::vector<SkipSet> candidates;
    candidates.reserve(kRandomCandidates + kNearCandidates);
    for (int i = 0; i < kRandomCandidates; ++i) candidates.push_back(random_set(draws));
    for (int i = 0; i < kNearCandidates; ++i) {
        const int swaps = 1 + draws.below(3);
        candidates.push_back(swapped(best_, swaps, draws));
    }
    consider(candidates);
    for (int climb = 0; climb < kClimbs && pick.layers() > 0; ++climb) {
        candidates.clear();
        for (int i = 0; i < kClimbCandidates; ++i) candidates.push_back(swapped(pick, 1, draws));
        consider(candidates);
    }
    return pick.layers() > 0 ? pick : random_set(draws);  // all of them were tried
}

}  // namespace paceline
