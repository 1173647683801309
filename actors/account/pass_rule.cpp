#include "actors/account/pass_rule.hpp"

#include <algorithm>

namespace paceline {

bool PassRule::begins(const msg::Price& price, double hit, double tries, int length_max) const {
    if (is_off(price.mode)) return false;
    const bool known = price.plain_us > 0.0F && first_.known() && tries >= kTriesMin;
    if (price.mode == msg::SpeculationMode::Probe || !known) return true;
    double path = 1.0;
    double tokens = 0.0;
    double cost = price.pass_share * first_.mean();
    for (int length = 1; length <= std::max(length_max, 1); ++length) {
        path *= hit;
        tokens += path;
        if (length > 1) cost += price.pass_share * further_.mean();
        cost += price.row_us;
        if (tokens * price.plain_us >= cost) return true;
        if (length > 1 && !further_.known()) return false;
    }
    return false;
}

double PassRule::reach_min(const msg::Price& price, double hit, bool sends_all) const {
    if (price.token_us <= 0.0F || !further_.known() || hit <= 0.0) return 0.0;
    const double row = sends_all ? price.row_us : 0.0;
    return (price.pass_share * further_.mean() + row) / (hit * price.token_us);
}

}  // namespace paceline
