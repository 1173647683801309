#include "actors/account/exit_worth.hpp"

#include <algorithm>

namespace paceline {

void ExitWorth::take(const msg::Price& price) {
    if (price.generation < price_.generation) return;
    const bool probe = price.mode == msg::SpeculationMode::Probe;
    if (probe && price_.mode != msg::SpeculationMode::Probe)
        weight_ = std::min(weight_, kProbeMemory);
    price_ = price;
}

bool ExitWorth::pays() const {
    if (always_on_) return true;
    if (is_off(price_.mode)) return false;
    if (price_.mode == msg::SpeculationMode::Probe) return true;
    return !measured_ || price_.token_us <= 0.0F || gain_us() >= cost_us();
}

void ExitWorth::spent(double micros, bool delayed, double rows) {
    // An evaluation that had to wait for its core does not cost more: the shortest counts, and a
    // longer one only if no short one has come for long.
    time_us_ = measured_ ? std::min(micros, time_us_ * kShareGrowth) : micros;
    const double learning = measured_ ? 1.0 / kCostMemory : 1.0;
    delay_ += ((delayed ? 1.0 : kIdleShare) - delay_) * learning;
    rows_ += (rows - rows_) * learning;
    measured_ = true;
}

void ExitWorth::learned(std::size_t right) {
    weight_ = std::min(weight_ + 1.0, kMemory);
    gain_ += (static_cast<double>(right) - gain_) / weight_;
}

}  // namespace paceline
