// GaussianProcess: predicts the value of skip sets that were not tried from those that were.
//
//     covariance of two sets   Matern 5/2 of sqrt(d) / length, d = sub-layers in which they differ
//     of two measurements      + noise, if they are the same one
//
// Values are brought to mean 0 and deviation 1. The length (1, 2 or 4 times the root of the mean d)
// and the noise (1, 10 or 100 times kNoiseLeast) are those under which the values are most likely.
// Beliefs are in the units of the values.
// Cost: 9 n^3 / 6 multiplications to fit n sets, n^2 / 2 for a candidate; memory 3 n^2 numbers.
// A plain value, fixed once made; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/skip_set.hpp"

namespace paceline {

struct SetValue {
    SkipSet set;
    double value = 0.0;
};

class GaussianProcess {
public:
    static constexpr double kNoiseLeast = 1e-2;  // variance, of values of deviation 1

    struct Belief {
        double mean = 0.0;
        double deviation = 0.0;
    };

    /// Preconditions: at least one set, all of one number of layers.
    explicit GaussianProcess(std::span<const SetValue> known);

    /// One belief for each candidate.
    [[nodiscard]] std::vector<Belief> expect(std::span<const SkipSet> candidates) const;

    [[nodiscard]] double noise() const { return noise_; }

private:
    using Words = std::vector<std::uint64_t>;

    /// The Cholesky factor of the covariances, and the values solved by it.
    struct Fit {
        std::vector<double> root = {};    // the factor: lower triangle of [n, n]
        std::vector<double> values = {};  // root^-1 y
        std::vector<double> by_distance = {};
        double noise = 0.0;
        double likelihood = 0.0;  // logarithm, less a constant
    };

    [[nodiscard]] Fit fit(double length, double noise, const std::vector<double>& values) const;
    [[nodiscard]] Words packed(const SkipSet& set) const;
    [[nodiscard]] std::size_t distance(const Words& a, const Words& b) const;

    std::size_t count_;  // n
    std::size_t sublayers_;
    std::vector<Words> sets_;
    std::vector<std::uint32_t> distances_;  // [n, n]
    double mean_ = 0.0;
    double deviation_ = 1.0;
    std::vector<double> root_;
    std::vector<double> values_;
    std::vector<double> by_distance_;  // covariance of sets that differ in so many sub-layers
    double noise_ = kNoiseLeast;
};

}  // namespace paceline
