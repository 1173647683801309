#include "model/reference/rms_norm.hpp"

#include <cmath>
#include <cstddef>

#include "ipc/base/check.hpp"

namespace paceline::reference {

void rms_norm(std::span<const float> x,
              std::span<const float> weight,
              float epsilon,
              std::span<float> out) {
    PACE_CHECK(!x.empty() && weight.size() == x.size() && out.size() == x.size(),
               "rms_norm needs one weight and one output per element");
    double squares = 0.0;
    for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
    const double mean = squares / static_cast<double>(x.size());
    const double scale = 1.0 / std::sqrt(mean + static_cast<double>(epsilon));
    for (std::size_t i = 0; i < x.size(); ++i) {
        out[i] =
            static_cast<float>(static_cast<double>(x[i]) * scale * static_cast<double>(weight[i]));
    }
}

}  // namespace paceline::reference
