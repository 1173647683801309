#include "model/reference/swiglu.hpp"

#include <cmath>
#include <cstddef>

#include "ipc/base/check.hpp"

namespace paceline::reference {

void swiglu(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
    PACE_CHECK(gate.size() == up.size() && gate.size() == out.size(),
               "swiglu needs as many gates as ups as outputs");
    for (std::size_t i = 0; i < gate.size(); ++i) {
        const double g = gate[i];
        out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * static_cast<double>(up[i]));
    }
}

}  // namespace paceline::reference
