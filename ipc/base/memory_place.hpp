// MemoryPlace: whether bytes lie where the host reads them, or on a device.
#pragma once

#include <cstdint>

namespace paceline {

/// Device: an address that only the device of the process (or a peer device that maps it) may follow.
/// The host passes it on and never reads through it.
enum class MemoryPlace : std::uint8_t { Host, Device };

}  // namespace paceline
