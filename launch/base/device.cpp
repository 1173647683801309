#include "launch/base/device.hpp"

#include <charconv>
#include <fmt/core.h>

namespace paceline {

std::string to_text(const Device& device) {
    return device.gpu ? fmt::format("cuda:{}", *device.gpu) : "cpu";
}

std::optional<Device> parse_device(std::string_view word) {
    if (word == "cpu") return Device{};
    constexpr std::string_view kGpu = "cuda:";
    if (!word.starts_with(kGpu)) return std::nullopt;
    int number = -1;
    const char* end = word.data() + word.size();
    const auto [stop, wrong] = std::from_chars(word.data() + kGpu.size(), end, number);
    if (stop != end || wrong != std::errc{} || number < 0) return std::nullopt;
    return Device{number};
}

}  // namespace paceline
