// Fixed trees of heads that look ahead, for toy models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/ahead_heads.hpp"

namespace paceline::testing {

/// `width` tokens of the first head, a token of each further head below the best ones, and a second
/// one of the last head.
inline std::vector<AheadNode> toy_ahead_tree(std::size_t heads, std::uint8_t width) {
    std::vector<AheadNode> tree;
    for (std::uint8_t rank = 0; rank < width; ++rank) tree.push_back({-1, rank});
    std::int16_t at = 0;
    for (std::size_t head = 1; head < heads; ++head) {
        tree.push_back({at, 0});
        if (head + 1 == heads) tree.push_back({at, 1});
        at = static_cast<std::int16_t>(width + head - 1);
    }
    return tree;
}

}  // namespace paceline::testing
