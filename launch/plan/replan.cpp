#include "launch/plan/replan.hpp"

namespace paceline {

bool Replan::measured(double gain) {
    if (predicted_ <= 0.0) predicted_ = gain;
    above_ = gain > predicted_ * (1.0 + kError) ? above_ + 1 : 0;
    below_ = gain < predicted_ * (1.0 - kError) ? below_ + 1 : 0;
    if (above_ < kLooks && below_ < kLooks) return false;
    above_ = below_ = 0;
    predicted_ = gain;
    return true;
}

bool Replan::pays(const Change& change) {
    if (change.gain <= 0.0 || change.other_gain < kLead * change.gain) return false;
    const double saved = change.plain_seconds_left * (1.0 / change.gain - 1.0 / change.other_gain);
    return saved > change.load_seconds;
}

}  // namespace paceline
