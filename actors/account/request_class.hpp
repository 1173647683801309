// The classes of numbers of requests in a batch: what is measured of one number holds for the
// others of its class. 1, 2, 3 to 4, 5 to 8 requests and so on are a class each.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace paceline {

/// From 0; no request counts as one.
[[nodiscard]] inline int class_of(std::size_t requests) {
    return static_cast<int>(std::bit_width(std::max<std::size_t>(requests, 1) - 1));
}

}  // namespace paceline
