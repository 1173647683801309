#include "actors/account/row_choice.hpp"

#include <algorithm>
#include <vector>

namespace paceline {

std::size_t rows_worth(std::span<const double> probabilities,
                       std::uint32_t base,
                       const RowPrices& prices) {
    std::vector<double> tokens{static_cast<double>(base)};  // expected, by candidates taken
    for (const double p : probabilities) tokens.push_back(tokens.back() + p);
    std::vector<double> times;
    for (std::size_t taken = 0; taken < tokens.size(); ++taken) {
        const auto rows = base + static_cast<std::uint32_t>(taken);
        if (rows == 0) {
            times.push_back(0.0);
            continue;
        }
        const double time = prices.time_us(rows);
        if (time < 0.0) return probabilities.size();  // not known yet
        times.push_back(prices.fixed_us + time);
    }
    double rate = prices.plain_rate;
    for (std::size_t taken = 0; base > 0 && taken < tokens.size(); ++taken) {
        if (times[taken] > 0.0) rate = std::max(rate, tokens[taken] / times[taken]);
    }
    // At that rate the best plan is the one with the greatest surplus.
    std::size_t best = 0;
    for (std::size_t taken = 1; taken < tokens.size(); ++taken) {
        const double surplus = tokens[taken] - (rate * times[taken]);
        if (surplus > tokens[best] - (rate * times[best]) + 1e-12) best = taken;
    }
    return best;
}

}  // namespace paceline
