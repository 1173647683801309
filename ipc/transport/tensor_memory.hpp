// TensorMemory: where the bytes of a tensor slot lie, for whoever fills or reads them.
//
// A plain view: it owns nothing, and is valid for as long as whoever gave it says.
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
