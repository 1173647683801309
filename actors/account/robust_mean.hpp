// RobustMean: a running mean of durations that a single interrupted measurement does not move.
//
// The first values have equal weight, later ones 1 / kMemory; a value counts as at most kOutlier
// times the mean. Not thread-safe.
#pragma once

#include <algorithm>

namespace paceline {

class RobustMean {
public:
    static constexpr double kMemory = 16.0;
    static constexpr double kOutlier = 3.0;

    void add(double value) {
        if (count_ > 0.0) value = std::min(value, kOutlier * mean_);
        count_ = std::min(count_ + 1.0, kMemory);
        mean_ += (value - mean_) / count_;
    }
    [[nodiscard]] bool known() const { return count_ > 0.0; }
    /// 0: not known yet.
    [[nodiscard]] double mean() const { return mean_; }

private:
    double count_ = 0.0;
    double mean_ = 0.0;
};

}  // namespace paceline
