#include "model/sampling/probe.hpp"

#include <cmath>
#include <cstddef>

#include "ipc/base/check.hpp"

namespace paceline {

double probe_score(std::span<const float> hidden, const Probe& probe, float epsilon) {
    PACE_CHECK(hidden.size() == probe.v.size() && !hidden.empty(), "a probe of the model's width");
    double squares = 0.0;
    double product = 0.0;
    for (std::size_t i = 0; i < hidden.size(); ++i) {
        const double h = static_cast<double>(hidden[i]);
        squares += h * h;
        product += h * static_cast<double>(probe.v[i]);
    }
    const double rms =
        std::sqrt(squares / static_cast<double>(hidden.size()) + static_cast<double>(epsilon));
    return 1.0 / (1.0 + std::exp(-(product / rms + static_cast<double>(probe.b))));
}

}  // namespace paceline
