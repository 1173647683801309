// Device: what a backend computes on, and how people write it: "cpu", "cuda:0", or several GPUs
// that share every matrix, "cuda:0,cuda:1". Of a GPU also whether its sums are exact, so that a
// text does not depend on the batches that its rows came in: in a pipeline they always are, as no
// batch of it is large enough for cuBLAS (CudaOptions::exact).
//
// Plain values; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline {

struct Device {
    std::optional<int> gpu;     // N of "cuda:N"; nothing: the CPU
    bool exact = true;          // false (--exact off): plain decoding on a GPU may use cuBLAS
    std::vector<int> others{};  // further GPUs of a group (CudaOptions::others)
    /// The GPU, then the others; empty for the CPU.
    [[nodiscard]] std::vector<int> gpus() const;
    friend bool operator==(const Device&, const Device&) = default;
};

/// GPUs of a group (cuda::kOthersMax and one).
inline constexpr std::size_t kGroupGpusMax = 8;

/// Why a list of GPUs is no group on any machine, to follow the list's name: one twice, or more
/// than kGroupGpusMax. Nothing: it may be one.
[[nodiscard]] std::optional<std::string> list_problem(const std::vector<int>& gpus);
/// Two GPUs of a group that are called differently.
[[nodiscard]] std::string kinds_differ(int a,
                                       const std::string& name_a,
                                       int b,
                                       const std::string& name_b);

/// "cpu", "cuda:0", "cuda:0,cuda:1": as people write it, whether exact or not.
[[nodiscard]] std::string to_text(const Device& device);
/// Nothing for another word, and for a list with "cpu" in it. Whether the device is there:
/// gpu_check.hpp.
[[nodiscard]] std::optional<Device> parse_device(std::string_view word);

}  // namespace paceline
