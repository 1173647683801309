// RopeTable: the angle by which each pair of dimensions turns at each position.
//
// Frequencies and angles are computed in double and rounded to float32 once, as cosine and sine;
// every backend takes its rotations from here, so a rotation has the same bits everywhere. The
// kinds of scaling follow transformers' modeling_rope_utils (linear, yarn) and GGUF's rope_freqs
// tensor (factors, which is how a GGUF states llama3 scaling).
//
// Owns dims/2 frequencies. Immutable: may be read from several threads.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "ipc/base/ids.hpp"
#include "model/config.hpp"

namespace paceline {

class RopeTable {
public:
    /// Precondition: a checked configuration (dims even and > 0, base > 0, factor >= 1 where it
    /// is used, original_context > 0 for Yarn, dims/2 positive factors for Factors).
    explicit RopeTable(const RopeConfig& config);

    /// dims/2: how many pairs of a head rotate.
    [[nodiscard]] int pairs() const { return static_cast<int>(frequencies_.size()); }

    /// Radians per position of each pair.
    [[nodiscard]] std::span<const double> frequencies() const { return frequencies_; }

    /// Factor on every cosine and sine: 1 but for Yarn.
    [[nodiscard]] double magnitude() const { return magnitude_; }

    /// Writes magnitude * cos and magnitude * sin of `position`'s angles, [pairs] each.
    void fill(Position position, std::span<float> cosines, std::span<float> sines) const;

private:
    std::vector<double> frequencies_;  // [dims/2]
    double magnitude_ = 1.0;
};

/// The two dimensions of a head that pair `index` of `dims`/2 turns:
///     out[first]  = in[first] * cos - in[second] * sin
///     out[second] = in[first] * sin + in[second] * cos
[[nodiscard]] constexpr std::pair<int, int> rope_pair(RopePairing pairing, int dims, int index) {
    if (pairing == RopePairing::Adjacent) return {2 * index, 2 * index + 1};
    return {index, index + dims / 2};
}

}  // namespace paceline
