#include "model/reference/matmul.hpp"

#include <cstddef>

#include "ipc/base/check.hpp"

namespace paceline::reference {

void matmul(std::span<const float> weights,
            std::span<const float> x,
            std::span<const float> bias,
            std::span<float> out) {
    PACE_CHECK(weights.size() == out.size() * x.size(), "weights are [outputs, inputs]");
    PACE_CHECK(bias.empty() || bias.size() == out.size(), "one bias per output, or none");
    for (std::size_t o = 0; o < out.size(); ++o) {
        const std::span<const float> row = weights.subspan(o * x.size(), x.size());
        double sum = 0.0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            sum += static_cast<double>(row[i]) * static_cast<double>(x[i]);
        }
        if (!bias.empty()) sum += static_cast<double>(bias[o]);
        out[o] = static_cast<float>(sum);
    }
}

}  // namespace paceline::reference
