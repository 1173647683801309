// Push: the answer of everything bounded. Nothing in Paceline blocks on a full channel, drops
// silently or grows.
#pragma once

#include <cstdint>

namespace paceline {

enum class Push : std::uint8_t { Ok, Full };

}  // namespace paceline
