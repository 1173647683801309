// HeadBlock and AheadNode: what heads that look ahead may have beside a matrix (Medusa): a residual
// block, and a fixed tree of their tokens. A tree is a list of nodes, parents before children.
// Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ipc/base/limits.hpp"

namespace paceline {

/// What a head makes of n = norm(h) before E (HeadSpec).
enum class HeadBlock : std::uint8_t {
    Linear,    // T n
    Residual,  // n + SiLU(T n): Medusa's block of one layer
};

inline constexpr std::size_t kAheadNodesMax = kVerifyRowsMax - 1;  // the root takes a row
inline constexpr std::uint8_t kAheadRankMax = 15;  // a device draws so many after the best one

/// The token of this rank (0: the best) of the head for the node's depth.
struct AheadNode {
    std::int16_t parent = -1;  // its place in the list; -1: the root
    std::uint8_t rank = 0;

    friend bool operator==(const AheadNode&, const AheadNode&) = default;
};

}  // namespace paceline
