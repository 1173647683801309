// TensorMemory: where the bytes of a tensor slot lie. Data on a device is for the device alone.
#pragma once

#include <cstddef>

#include "ipc/base/memory_place.hpp"

namespace paceline {

struct TensorMemory {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    MemoryPlace place = MemoryPlace::Host;
};

}  // namespace paceline
