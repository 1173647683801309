#include "actors/account/hit_rates.hpp"

#include <algorithm>
#include <cmath>

namespace paceline {
namespace {

/// At least kLeast: one of 0, as of a very low temperature, would leave nothing to divide by.
double estimate_of(float log_prob) {
    constexpr double kLeast = 1e-6;
    return std::max(std::exp(std::min(static_cast<double>(log_prob), 0.0)), kLeast);
}

}  // namespace

void HitRates::Cell::scale(double factor) {
    tries *= factor;
    hits *= factor;
    estimates *= factor;
}

std::size_t HitRates::bucket_of(double estimate) {
    constexpr std::array<double, kBuckets - 1> kUpTo{0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95};
    return static_cast<std::size_t>(std::upper_bound(kUpTo.begin(), kUpTo.end(), estimate) -
                                    kUpTo.begin());
}

std::size_t HitRates::index_of(HitSource source) {
    return (std::size_t{2} * static_cast<std::size_t>(source.origin)) + (source.drawn ? 1 : 0);
}

void HitRates::learn(HitSource source, float log_prob, bool right) {
    const double estimate = estimate_of(log_prob);
    Cells& cells = sources_[index_of(source)];
    for (Cell* cell : {&cells[bucket_of(estimate)], &cells[kBuckets]}) {
        if (cell->tries >= kMemory) cell->scale((kMemory - 1.0) / kMemory);
        cell->tries += 1.0;
        cell->hits += right ? 1.0 : 0.0;
        cell->estimates += estimate;
    }
}

double HitRates::expected(HitSource source, float log_prob) const {
    const double estimate = estimate_of(log_prob);
    const Cell& cell = sources_[index_of(source)][bucket_of(estimate)];
    const double prior = source.drawn ? kDrawnRatio : 1.0;
    const double ratio = (cell.hits + (kPriorWeight * estimate * prior)) /
                         (cell.estimates + (kPriorWeight * estimate));
    return std::min(estimate * ratio, kProbabilityMax);
}

double HitRates::mean(HitSource source) const {
    const Cell& all = sources_[index_of(source)][kBuckets];
    return (all.hits + (kPriorWeight * kUnknownRate)) / (all.tries + kPriorWeight);
}

double HitRates::tries(HitSource source) const {
    return sources_[index_of(source)][kBuckets].tries;
}

void HitRates::shorten_memory() {
    for (Cells& cells : sources_) {
        for (Cell& cell : cells) {
            if (cell.tries > kProbeMemory) cell.scale(kProbeMemory / cell.tries);
        }
    }
}

}  // namespace paceline
