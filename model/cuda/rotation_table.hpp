// RotationTable: cosines and sines of every position that a row can have, on the device.
//
// Computed once from RopeTable, so rotations have the same bits as on the CPU. A batch only has the
// positions of its rows: computing the angles per batch would take some microseconds a row before
// the first kernel starts.
//
// Owns device memory; immutable once made.
#pragma once

#include <cstddef>

#include "model/kernels/cuda/runtime.hpp"
#include "model/rope_table.hpp"

namespace paceline {

class RotationTable {
public:
    /// Bytes that make() takes of the device.
    static std::size_t device_bytes(int positions, int pairs);

    /// For positions 0 .. positions - 1. False if there is not so much memory.
    static bool make(const RopeTable& rope, int positions, cuda::Stream& stream, RotationTable& to);

    /// [positions][pairs]
    [[nodiscard]] const float* cosines() const { return memory_.as<float>(); }
    [[nodiscard]] const float* sines() const { return memory_.as<float>(memory_.bytes() / 2); }

private:
    cuda::DeviceMemory memory_;
};

}  // namespace paceline
