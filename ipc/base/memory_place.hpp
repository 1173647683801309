// MemoryPlace: whether bytes are in host memory or on a device.
#pragma once

#include <cstdint>

namespace paceline {

/// Device: an address that only the process's device, or a peer device that maps it, may
/// dereference. The host passes it on and never dereferences it.
enum class MemoryPlace : std::uint8_t { Host, Device };

}  // namespace paceline
