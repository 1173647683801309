// Push: the result of an insertion into a bounded channel. A full channel never blocks, silently
// drops or grows.
#pragma once

#include <cstdint>

namespace paceline {

enum class Push : std::uint8_t { Ok, Full };

}  // namespace paceline
