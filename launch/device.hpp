// Device: what a backend computes on, and how people write it: "cpu", "cuda:0".
//
// Plain values; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace paceline {

struct Device {
    std::optional<int> gpu;  // N of "cuda:N"; nothing: the CPU
    friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:0": as written in a file.
[[nodiscard]] std::string to_text(const Device& device);
/// Nothing for a word that is neither. Whether the device is there: gpu_check.hpp.
[[nodiscard]] std::optional<Device> parse_device(std::string_view word);

}  // namespace paceline
