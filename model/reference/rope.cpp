#include "model/reference/rope.hpp"

#include <cstddef>

#include "ipc/base/check.hpp"
#include "model/rope_table.hpp"

namespace paceline::reference {

void rope(std::span<float> head,
          RopePairing pairing,
          std::span<const float> cosines,
          std::span<const float> sines) {
    PACE_CHECK(cosines.size() == sines.size() && 2 * cosines.size() <= head.size(),
               "rope needs one cosine and one sine per pair, and no more pairs than the head has");
    const int dims = 2 * static_cast<int>(cosines.size());
    for (std::size_t i = 0; i < cosines.size(); ++i) {
        const auto [low, high] = rope_pair(pairing, dims, static_cast<int>(i));
        float& first = head[static_cast<std::size_t>(low)];
        float& second = head[static_cast<std::size_t>(high)];
        const double x = first;
        const double y = second;
        const double c = cosines[i];
        const double s = sines[i];
        first = static_cast<float>(x * c - y * s);
        second = static_cast<float>(x * s + y * c);
    }
}

}  // namespace paceline::reference
