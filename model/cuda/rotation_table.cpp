#include "model/cuda/rotation_table.hpp"

#include <span>
#include <vector>

namespace paceline {

std::size_t RotationTable::device_bytes(int positions, int pairs) {
    return 2 * sizeof(float) * static_cast<std::size_t>(positions) *
           static_cast<std::size_t>(pairs);
}

bool RotationTable::make(const RopeTable& rope,
                         int positions,
                         cuda::Stream& stream,
                         RotationTable& to) {
    const auto pairs = static_cast<std::size_t>(rope.pairs());
    const std::size_t half = static_cast<std::size_t>(positions) * pairs;
    if (!cuda::DeviceMemory::allocate(device_bytes(positions, rope.pairs()), to.memory_))
        return false;
    std::vector<float> angles(2 * half);
    for (int position = 0; position < positions; ++position) {
        const std::size_t at = static_cast<std::size_t>(position) * pairs;
        rope.fill(position, std::span{angles}.subspan(at, pairs),
                  std::span{angles}.subspan(half + at, pairs));
    }
    stream.to_device(to.memory_.data(), angles.data(), angles.size() * sizeof(float));
    stream.finish();
    return true;
}

}  // namespace paceline
