// What tests of kernels share: arrays on the (emulated) device, numbers to fill them with.
//
// Not thread-safe. Everything runs in one stream; give() and take() wait for it.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "model/kernels/cuda/runtime.hpp"
#include "model/weights/tensor.hpp"

namespace paceline::cuda::test {

/// A copy of host numbers on the device; freed at the end.
template <class T>
class OnDevice {
public:
    OnDevice() = default;
    explicit OnDevice(const std::vector<T>& values) : size_{values.size()} {
        REQUIRE(DeviceMemory::allocate(size_ * sizeof(T), memory_));
        Stream stream;
        stream.to_device(memory_.data(), values.data(), size_ * sizeof(T));
        stream.finish();
    }
    [[nodiscard]] T* data() const { return memory_.template as<T>(); }
    [[nodiscard]] std::vector<T> take() const {
        std::vector<T> values(size_);
        Stream stream;
        stream.to_host(values.data(), memory_.data(), size_ * sizeof(T));
        stream.finish();
        return values;
    }

private:
    std::size_t size_ = 0;
    DeviceMemory memory_;
};

[[nodiscard]] inline std::vector<float> random_floats(std::size_t count,
                                                      unsigned seed,
                                                      float scale = 1.0f) {
    std::mt19937 draw{seed};
    std::normal_distribution<float> normal{0.0f, scale};
    std::vector<float> values(count);
    for (float& value : values) value = normal(draw);
    return values;
}

/// Rounded to bf16, as bits.
[[nodiscard]] inline std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
    std::vector<std::uint16_t> bits;
    bits.reserve(values.size());
    for (const float value : values) bits.push_back(float_to_bfloat(value));
    return bits;
}

}  // namespace paceline::cuda::test
