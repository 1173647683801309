#include "model/reference/attention.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

#include "ipc/base/check.hpp"
#include "model/reference/softmax.hpp"

namespace paceline::reference {
namespace {

double dot(const float* a, const float* b, std::size_t n) {
    double sum = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
        sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    return sum;
}

}  // namespace

void attention(const AttentionShape& shape,
               std::span<const float> query,
               std::span<const float* const> keys,
               std::span<const float* const> values,
               std::span<float> out) {
    PACE_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
               "each KV head serves the same number of query heads");
    PACE_CHECK(!keys.empty() && keys.size() == values.size(), "a row sees at least its own key");
    const auto head_dim = static_cast<std::size_t>(shape.head_dim);
    const auto heads = static_cast<std::size_t>(shape.heads);
    const std::size_t group = heads / static_cast<std::size_t>(shape.kv_heads);
    PACE_CHECK(query.size() == heads * head_dim && out.size() == query.size(),
               "query and output are [heads, head_dim]");

    const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
    std::vector<double> weights(keys.size());
    for (std::size_t head = 0; head < heads; ++head) {
        const std::size_t kv_offset = head / group * head_dim;
        for (std::size_t p = 0; p < keys.size(); ++p) {
            weights[p] = scale * dot(&query[head * head_dim], keys[p] + kv_offset, head_dim);
        }
        softmax(weights);
        for (std::size_t d = 0; d < head_dim; ++d) {
            double sum = 0.0;
            for (std::size_t p = 0; p < keys.size(); ++p) {
                sum += weights[p] * static_cast<double>(values[p][kv_offset + d]);
            }
            out[head * head_dim + d] = static_cast<float>(sum);
        }
    }
}

}  // namespace paceline::reference
