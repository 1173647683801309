// RobustMean: a running mean of durations that a single interrupted measurement does not move.
//
//     1 to 3 values      their lower median: whichever of them was interrupted, others count
//     further ones       the mean of about kMemory values, each of at most kOutlier times the mean
//
// Not thread-safe. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace paceline {

class RobustMean {
public:
    static constexpr std::size_t kFirst = 3;
    static constexpr double kMemory = 16.0;
    static constexpr double kOutlier = 3.0;

    void add(double value) {
        if (count_ < kFirst) {
            first_[count_++] = value;
            std::array<double, kFirst> sorted = first_;
            std::sort(sorted.begin(), sorted.begin() + count_);
            mean_ = sorted[(count_ - 1) / 2];
            weight_ = static_cast<double>(count_);
            return;
        }
        weight_ = std::min(weight_ + 1.0, kMemory);
        mean_ += (std::min(value, kOutlier * mean_) - mean_) / weight_;
    }
    [[nodiscard]] bool known() const { return count_ > 0; }
    /// 0: not known yet.
    [[nodiscard]] double mean() const { return mean_; }

private:
    std::array<double, kFirst> first_{};
    std::size_t count_ = 0;  // of the first values
    double weight_ = 0.0;
    double mean_ = 0.0;
};

}  // namespace paceline
