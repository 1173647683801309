#include "model/weights/quantise.hpp"

#include <algorithm>
#include <cmath>

#include "model/weights/tensor.hpp"

namespace paceline {
namespace {

float finite_or_zero(float x) {
    return std::isfinite(x) ? x : 0.0f;
}

/// Writes round((x - minimum) / scale), with both as their float16 gives them back.
void round_to_steps(const float* x, int count, float low, float high, QuantisedGroup& to) {
    const float d = half_to_float(to.scale);
    const float m = half_to_float(to.minimum);
    const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    for (int k = 0; k < count; ++k) {
        to.q[k] = static_cast<std::int8_t>(
            std::clamp(std::nearbyintf((finite_or_zero(x[k]) - m) * inverse), low, high));
    }
}

}  // namespace

QuantisedGroup quantise_int8(const float* x, int count) {
    float largest = 0.0f;
    for (int k = 0; k < count; ++k) largest = std::max(largest, std::fabs(finite_or_zero(x[k])));
    QuantisedGroup to;
    to.scale = float_to_half(largest / 127.0f);
    round_to_steps(x, count, -127.0f, 127.0f, to);
    return to;
}

QuantisedGroup quantise_q4(const float* x, int count) {
    float low = finite_or_zero(x[0]);
    float high = low;
    for (int k = 1; k < count; ++k) {
        low = std::min(low, finite_or_zero(x[k]));
        high = std::max(high, finite_or_zero(x[k]));
    }
    QuantisedGroup to;
    to.scale = float_to_half((high - low) / 15.0f);
    to.minimum = float_to_half(low);
    round_to_steps(x, count, 0.0f, 15.0f, to);
    return to;
}

QuantisedGroup quantise_q4_0(const float* x) {
    float largest = 0.0f;
    for (int k = 0; k < kQuantGroup; ++k) {
        const float value = finite_or_zero(x[k]);
        if (std::fabs(value) > std::fabs(largest)) largest = value;
    }
    QuantisedGroup to;
    to.scale = float_to_half(largest / -8.0f);
    const float d = half_to_float(to.scale);
    const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
    for (int k = 0; k < kQuantGroup; ++k) {
        to.q[k] = static_cast<std::int8_t>(
            std::clamp(std::nearbyintf(finite_or_zero(x[k]) * inverse), -8.0f, 7.0f) + 8.0f);
    }
    return to;
}

}  // namespace paceline
