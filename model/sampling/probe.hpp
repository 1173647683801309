// Probe: the probability that an exit's token will be accepted, by logistic regression on the
// hidden state.
//
//     score = sigmoid(v . (h / rms(h)) + b),    rms(h) = sqrt(mean(h^2) + epsilon)
//
// Trained for one exit, one head there and one way of choosing tokens; read by open_probe_part()
// (model/weights/trained_parts.hpp). Plain values and a pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline {

/// The head behind the exit: the target's own as a logit lens, or one trained for this layer.
enum class ProbeHead : std::uint8_t { Lens, Trained };
/// How tokens are chosen.
enum class ProbeMode : std::uint8_t { Greedy, Sampled };

/// As in the names of a part's tensors.
[[nodiscard]] constexpr const char* name_of(ProbeHead head) {
    return head == ProbeHead::Lens ? "lens" : "head";
}
[[nodiscard]] constexpr const char* name_of(ProbeMode mode) {
    return mode == ProbeMode::Greedy ? "greedy" : "sampled";
}

struct Probe {
    int layer = 0;  // after so many layers
    ProbeHead head = ProbeHead::Lens;
    ProbeMode mode = ProbeMode::Greedy;
    std::vector<float> v = {};  // [dim]
    float b = 0.0F;
};

/// In 0 .. 1. `hidden` is the state after the exit's layer, before any norm; `epsilon` is the
/// model's (ModelConfig::norm_epsilon). Sums are float64 in the order of the dimensions.
/// Precondition: `hidden` has as many numbers as probe.v.
[[nodiscard]] double probe_score(std::span<const float> hidden, const Probe& probe, float epsilon);

}  // namespace paceline
