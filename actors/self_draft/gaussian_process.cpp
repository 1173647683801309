#include "actors/self_draft/gaussian_process.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace paceline {
namespace {

/// Matern 5/2.
double covariance(double distance, double length) {
    const double r = std::sqrt(5.0 * distance) / length;
    return (1.0 + r + r * r / 3.0) * std::exp(-r);
}

/// The Cholesky factor of the symmetric matrix [n, n] whose lower triangle is given, in its place.
/// The inner loops add rows to rows, which compilers vectorise without reordering a sum.
void take_root(std::vector<double>& a, std::size_t n) {
    std::vector<double> column(n);
    for (std::size_t k = 0; k < n; ++k) {
        const double pivot = std::sqrt(a[k * n + k]);
        a[k * n + k] = pivot;
        for (std::size_t i = k + 1; i < n; ++i) {
            a[i * n + k] /= pivot;
            column[i] = a[i * n + k];
        }
        for (std::size_t i = k + 1; i < n; ++i) {
            const double factor = column[i];
            for (std::size_t j = k + 1; j <= i; ++j) a[i * n + j] -= factor * column[j];
        }
    }
}

/// x = root^-1 x for all columns of x [n, columns].
void solve(const std::vector<double>& root,
           std::size_t n,
           std::size_t columns,
           std::vector<double>& x) {
    for (std::size_t i = 0; i < n; ++i) {
        double* row = &x[i * columns];
        for (std::size_t k = 0; k < i; ++k) {
            const double factor = root[i * n + k];
            const double* above = &x[k * columns];
            for (std::size_t c = 0; c < columns; ++c) row[c] -= factor * above[c];
        }
        const double pivot = root[i * n + i];
        for (std::size_t c = 0; c < columns; ++c) row[c] /= pivot;
    }
}

}  // namespace

GaussianProcess::GaussianProcess(std::span<const SetValue> known) : count_{known.size()} {
    PACE_CHECK(!known.empty(), "a Gaussian process of no values");
    sublayers_ = std::size_t{2} * static_cast<std::size_t>(known.front().set.layers());
    std::vector<double> values;
    for (const SetValue& each : known) {
        sets_.push_back(packed(each.set));
        values.push_back(each.value);
        mean_ += each.value / static_cast<double>(count_);
    }
    double variance = 0.0;
    for (double& value : values) {
        value -= mean_;
        variance += value * value / static_cast<double>(count_);
    }
    if (variance > 1e-12) deviation_ = std::sqrt(variance);
    for (double& value : values) value /= deviation_;

    distances_.resize(count_ * count_);
    double distance_sum = 0.0;
    for (std::size_t i = 0; i < count_; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const std::size_t d = distance(sets_[i], sets_[j]);
            distances_[i * count_ + j] = static_cast<std::uint32_t>(d);
            distance_sum += static_cast<double>(d);
        }
    }
    const double pairs = 0.5 * static_cast<double>(count_) * static_cast<double>(count_ - 1);
    const double scale = std::sqrt(std::max(1.0, distance_sum / std::max(1.0, pairs)));

    Fit best;
    for (const double length : {1.0, 2.0, 4.0}) {
        for (const double noise : {kNoiseLeast, 10 * kNoiseLeast, 100 * kNoiseLeast}) {
            Fit next = fit(length * scale, noise, values);
            if (best.root.empty() || next.likelihood > best.likelihood) best = std::move(next);
        }
    }
    root_ = std::move(best.root);
    values_ = std::move(best.values);
    by_distance_ = std::move(best.by_distance);
    noise_ = best.noise;
}

GaussianProcess::Fit GaussianProcess::fit(double length,
                                          double noise,
                                          const std::vector<double>& values) const {
    Fit fit;
    fit.noise = noise;
    fit.by_distance.resize(sublayers_ + 1);
    for (std::size_t d = 0; d <= sublayers_; ++d) {
        fit.by_distance[d] = covariance(static_cast<double>(d), length);
    }
    fit.root.resize(count_ * count_);
    for (std::size_t i = 0; i < count_; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            fit.root[i * count_ + j] = fit.by_distance[distances_[i * count_ + j]];
        }
        fit.root[i * count_ + i] = 1.0 + noise;
    }
    take_root(fit.root, count_);
    fit.values = values;
    solve(fit.root, count_, 1, fit.values);
    for (std::size_t i = 0; i < count_; ++i) {
        fit.likelihood -= 0.5 * fit.values[i] * fit.values[i];
        fit.likelihood -= std::log(fit.root[i * count_ + i]);
    }
    return fit;
}

std::vector<GaussianProcess::Belief> GaussianProcess::expect(
    std::span<const SkipSet> candidates) const {
    const std::size_t columns = candidates.size();
    if (columns == 0) return {};
    std::vector<double> near(count_ * columns);
    for (std::size_t c = 0; c < columns; ++c) {
        const Words candidate = packed(candidates[c]);
        for (std::size_t i = 0; i < count_; ++i) {
            near[i * columns + c] = by_distance_[distance(sets_[i], candidate)];
        }
    }
    solve(root_, count_, columns, near);
    std::vector<Belief> beliefs(columns, Belief{0.0, 1.0});  // deviation: the variance at first
    for (std::size_t i = 0; i < count_; ++i) {
        for (std::size_t c = 0; c < columns; ++c) {
            const double part = near[i * columns + c];
            beliefs[c].mean += part * values_[i];
            beliefs[c].deviation -= part * part;
        }
    }
    for (Belief& belief : beliefs) {
        belief.mean = mean_ + deviation_ * belief.mean;
        belief.deviation = deviation_ * std::sqrt(std::max(0.0, belief.deviation));
    }
    return beliefs;
}

GaussianProcess::Words GaussianProcess::packed(const SkipSet& set) const {
    PACE_CHECK(std::size_t{2} * static_cast<std::size_t>(set.layers()) == sublayers_,
               "sets of models of different depth");
    Words words((sublayers_ + 63) / 64);
    for (std::size_t s = 0; s < sublayers_; ++s) {
        if (set.skips(static_cast<int>(s))) words[s / 64] |= std::uint64_t{1} << (s % 64);
    }
    return words;
}

std::size_t GaussianProcess::distance(const Words& a, const Words& b) const {
    std::size_t differ = 0;
    for (std::size_t w = 0; w < a.size(); ++w) {
        differ += static_cast<std::size_t>(std::popcount(a[w] ^ b[w]));
    }
    return differ;
}

}  // namespace paceline
