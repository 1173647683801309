#include "model/rope_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

/// base^(-2i/dims), the frequencies before any scaling.
std::vector<double> unscaled_frequencies(const RopeConfig& config) {
    std::vector<double> frequencies(static_cast<std::size_t>(config.dims / 2));
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double exponent = 2.0 * static_cast<double>(i) / config.dims;
        frequencies[i] = std::pow(static_cast<double>(config.base), -exponent);
    }
    return frequencies;
}

/// Where between the pairs (a fraction) the frequency lies that turns `rotations` times within
/// the original context.
double pair_with_rotations(const RopeConfig& config, double rotations) {
    const double turn = 2.0 * std::numbers::pi;
    return config.dims * std::log(config.original_context / (rotations * turn)) /
           (2.0 * std::log(static_cast<double>(config.base)));
}

/// Yarn: fast pairs keep their frequency, slow pairs are divided by the factor as in linear
/// scaling, and a ramp leads from the one to the other.
void scale_yarn(const RopeConfig& config, std::vector<double>& frequencies) {
    PACE_CHECK(config.original_context > 0, "yarn needs the context before the extension");
    const double low = std::max(std::floor(pair_with_rotations(config, config.beta_fast)), 0.0);
    double high = std::min(std::ceil(pair_with_rotations(config, config.beta_slow)),
                           static_cast<double>(config.dims - 1));
    if (high == low) high += 0.001;  // a step is a very short ramp
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double slow = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        frequencies[i] *= slow / static_cast<double>(config.factor) + (1.0 - slow);
    }
}

double yarn_magnitude(const RopeConfig& config) {
    if (config.attention_factor != 0.0f) return config.attention_factor;
    if (config.factor <= 1.0f) return 1.0;
    return 0.1 * std::log(static_cast<double>(config.factor)) + 1.0;
}

}  // namespace

RopeTable::RopeTable(const RopeConfig& config) {
    PACE_CHECK(config.dims > 0 && config.dims % 2 == 0, "rope turns pairs of dimensions");
    PACE_CHECK(config.base > 0.0f, "rope base is positive");
    frequencies_ = unscaled_frequencies(config);
    switch (config.scaling) {
        case RopeScaling::None:
            break;
        case RopeScaling::Linear:
            PACE_CHECK(config.factor > 0.0f, "the rope scaling factor is positive");
            for (double& frequency : frequencies_) frequency /= static_cast<double>(config.factor);
            break;
        case RopeScaling::Yarn:
            PACE_CHECK(config.factor > 0.0f, "the rope scaling factor is positive");
            scale_yarn(config, frequencies_);
            magnitude_ = yarn_magnitude(config);
            break;
        case RopeScaling::Factors:
            PACE_CHECK(config.factors.size() == frequencies_.size(), "one rope factor per pair");
            for (std::size_t i = 0; i < frequencies_.size(); ++i) {
                PACE_CHECK(config.factors[i] > 0.0f, "rope factors are positive");
                frequencies_[i] /= static_cast<double>(config.factors[i]);
            }
            if (config.attention_factor != 0.0f) magnitude_ = config.attention_factor;
            break;
    }
}

void RopeTable::fill(Position position, std::span<float> cosines, std::span<float> sines) const {
    PACE_CHECK(cosines.size() == frequencies_.size() && sines.size() == frequencies_.size(),
               "one cosine and one sine per pair");
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
        const double angle = position * frequencies_[i];
        cosines[i] = static_cast<float>(magnitude_ * std::cos(angle));
        sines[i] = static_cast<float>(magnitude_ * std::sin(angle));
    }
}

}  // namespace paceline
