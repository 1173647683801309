// Slope: the growth of a figure over time, by least squares over samples that are not kept, so that
// a soak of a day needs no more memory than one of a minute.
//
// A figure of a process begins anew with every incarnation: cut() gives what follows an intercept
// of its own, and one slope is fitted to all incarnations.
//     slope = sum over incarnations of Sxy / sum over incarnations of Sxx
// Plain values; one thread.
#pragma once

#include <algorithm>

namespace paceline::testing {

class Slope {
public:
    void add(double hours, double value);
    /// The samples that follow are another incarnation's.
    void cut();

    [[nodiscard]] double per_hour() const;  // 0 before two samples of one incarnation
    /// The longest time over which one incarnation was sampled.
    [[nodiscard]] double hours() const { return std::max(longest_, last_x_ - first_x_); }
    [[nodiscard]] double least() const { return least_; }
    [[nodiscard]] double most() const { return most_; }
    [[nodiscard]] bool empty() const { return !any_; }

private:
    // Of the incarnations before.
    double sxx_ = 0.0;
    double sxy_ = 0.0;
    double longest_ = 0.0;
    // Of the one now.
    double count_ = 0.0;
    double mean_x_ = 0.0;
    double mean_y_ = 0.0;
    double own_sxx_ = 0.0;
    double own_sxy_ = 0.0;
    double first_x_ = 0.0;
    double last_x_ = 0.0;
    // Of all.
    bool any_ = false;
    double least_ = 0.0;
    double most_ = 0.0;
};

/// What a slope may be. Over a short time noise alone makes a steep slope, so growth counts only if
/// it also comes to more than `noise` within the time that was sampled.
struct SlopeBound {
    double per_hour = 0.0;
    double noise = 0.0;

    [[nodiscard]] double over(double hours) const {
        return hours <= 0.0 ? per_hour : std::max(per_hour, noise / hours);
    }
};

}  // namespace paceline::testing
