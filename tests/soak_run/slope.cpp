#include "tests/soak_run/slope.hpp"

namespace paceline::testing {

void Slope::add(double hours, double value) {
    if (count_ == 0.0) first_x_ = hours;
    last_x_ = hours;
    count_ += 1.0;
    const double dx = hours - mean_x_;
    mean_x_ += dx / count_;
    const double dy = value - mean_y_;
    mean_y_ += dy / count_;
    own_sxx_ += dx * (hours - mean_x_);
    own_sxy_ += dx * (value - mean_y_);
    least_ = any_ ? std::min(least_, value) : value;
    most_ = any_ ? std::max(most_, value) : value;
    any_ = true;
}

void Slope::cut() {
    longest_ = hours();
    sxx_ += own_sxx_;
    sxy_ += own_sxy_;
    count_ = mean_x_ = mean_y_ = own_sxx_ = own_sxy_ = first_x_ = last_x_ = 0.0;
}

double Slope::per_hour() const {
    const double sxx = sxx_ + own_sxx_;
    return sxx > 0.0 ? (sxy_ + own_sxy_) / sxx : 0.0;
}

}  // namespace paceline::testing
