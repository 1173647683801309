#include "actors/account/batch_costs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "actors/account/request_class.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kContextUnit = 512;  // contexts below it cost about the same
constexpr double kNoBound = std::numeric_limits<double>::infinity();

}  // namespace

BatchCosts::Key BatchCosts::key_of(const BatchSize& size) {
    return {class_of(size.requests), static_cast<int>(std::bit_width(size.context / kContextUnit))};
}

void BatchCosts::learn(const BatchSize& size, const msg::BatchCost& cost) {
    if (!cost.known() || size.rows == 0 || size.rows > kVerifyRowsMax) return;
    Curve& curve = curves_[key_of(size)];
    Point& point = curve.points[size.rows];
    Time most{.sum_us = kNoBound, .longest_us = kNoBound};
    if (!curve.knows(size.rows)) {
        point = {};
        const Time likely = curve.batches > 0 ? expected(size) : Time{};
        if (likely.sum_us > 0.0) {
            most = {.sum_us = kFirstMost * likely.sum_us,
                    .longest_us = kFirstMost * likely.longest_us};
        }
    }
    point.seen = ++curve.batches;
    point.sum.add(std::min<double>(cost.sum_us, most.sum_us));
    point.longest.add(std::min<double>(cost.longest_us, most.longest_us));
}

const BatchCosts::Curve* BatchCosts::curve_near(const Key& key) const {
    const Curve* nearest = nullptr;
    int least = 0;
    for (const auto& [other, curve] : curves_) {
        const int distance =
            4 * std::abs(other.first - key.first) + std::abs(other.second - key.second);
        if (nearest == nullptr || distance < least) {
            nearest = &curve;
            least = distance;
        }
    }
    return nearest;
}

BatchCosts::Time BatchCosts::expected(const BatchSize& size) const {
    const Curve* curve = curve_near(key_of(size));
    if (curve == nullptr) return {};
    std::uint32_t below = 0;
    std::uint32_t above = 0;
    for (std::uint32_t rows = 1; rows <= kVerifyRowsMax; ++rows) {
        if (!curve->knows(rows)) continue;
        if (rows <= size.rows) below = rows;
        if (rows >= size.rows && above == 0) above = rows;
    }
    const auto at = [&](RobustMean Point::*what) {
        const auto mean = [&](std::uint32_t rows) { return (curve->points[rows].*what).mean(); };
        const auto n = static_cast<double>(size.rows);
        if (below != 0 && above != 0) {
            if (below == above) return mean(below);
            const double part = (n - below) / (above - below);
            return mean(below) + (part * (mean(above) - mean(below)));
        }
        const double known = below != 0 ? below : above;
        const double time = mean(static_cast<std::uint32_t>(known));
        return time * (1.0 + (kRowShare * (n - 1.0))) / (1.0 + (kRowShare * (known - 1.0)));
    };
    return {.sum_us = at(&Point::sum), .longest_us = at(&Point::longest)};
}

}  // namespace paceline
