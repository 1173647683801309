// Whether work grows with the size of its input or with the square of it.
#pragma once

#include <cstddef>
#include <ctime>
#include <string>

#include <doctest/doctest.h>

namespace paceline::fixtures {

/// Of this thread alone: other processes of a loaded machine do not count.
inline double cpu_seconds() {
    std::timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Runs `work(n)` and `work(4 n)`. Four times the input takes four times as long, a little more
/// with a logarithm; quadratic work takes sixteen times as long. What disturbs one measurement does
/// not disturb five.
template <class Work>
void check_linear_time(std::size_t n, Work work) {
    constexpr double kRatioMax = 9.0, kSecondsMax = 5.0;
    double ratio = 0.0;
    for (int attempt = 0; attempt < 5; ++attempt) {
        const double begin = cpu_seconds();
        work(n);
        const double middle = cpu_seconds();
        work(4 * n);
        const double longer = cpu_seconds() - middle;
        ratio = longer / (middle - begin);
        if (ratio < kRatioMax) return;
        if (longer > kSecondsMax) break;  // no disturbance
    }
    CHECK(ratio < kRatioMax);
}

/// `unit` as often as it takes for at least `bytes`.
inline std::string repeated(const std::string& unit, std::size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return text;
}

}  // namespace paceline::fixtures
