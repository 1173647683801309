// TensorMemory: a view of the bytes of a tensor slot, on the host or on a device.
//
// It owns nothing; the function that returns it defines how long it is valid.
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
