// Device: what a backend computes on, and how people write it: "cpu", "cuda:0". Of a GPU also
// whether its sums are exact, so that a text does not depend on the batches that its rows came in:
// in a pipeline they always are, as no batch of it is large enough for cuBLAS (CudaOptions::exact).
//
// Plain values; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace paceline {

struct Device {
    std::optional<int> gpu;  // N of "cuda:N"; nothing: the CPU
    bool exact = true;       // false (--exact off): plain decoding on a GPU may use cuBLAS
    friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:0": as people write it, whether exact or not.
[[nodiscard]] std::string to_text(const Device& device);
/// Nothing for a word that is neither. Whether the device is there: gpu_check.hpp.
[[nodiscard]] std::optional<Device> parse_device(std::string_view word);

}  // namespace paceline
