#include "launch/base/device.hpp"

#include <charconv>
#include <fmt/core.h>
#include <set>

namespace paceline {

namespace {

/// N of "cuda:N".
std::optional<int> parse_gpu(std::string_view word) {
    constexpr std::string_view kGpu = "cuda:";
    if (!word.starts_with(kGpu)) return std::nullopt;
    int number = -1;
    const char* end = word.data() + word.size();
    const auto [stop, wrong] = std::from_chars(word.data() + kGpu.size(), end, number);
    if (stop != end || wrong != std::errc{} || number < 0) return std::nullopt;
    return number;
}

}  // namespace

std::vector<int> Device::gpus() const {
    std::vector<int> all;
    if (gpu) all.push_back(*gpu);
    all.insert(all.end(), others.begin(), others.end());
    return all;
}

std::optional<std::string> list_problem(const std::vector<int>& gpus) {
    if (gpus.size() > kGroupGpusMax)
        return fmt::format("names {} GPUs, at most {} share a stage", gpus.size(), kGroupGpusMax);
    std::set<int> seen;
    for (const int gpu : gpus) {
        if (!seen.insert(gpu).second)
            return fmt::format("names cuda:{} twice; each GPU has a part of its own", gpu);
    }
    return std::nullopt;
}

std::string kinds_differ(int a, const std::string& name_a, int b, const std::string& name_b) {
    return fmt::format("cuda:{} is an {}, cuda:{} an {}; GPUs that share a stage are of one kind",
                       a, name_a, b, name_b);
}

std::string to_text(const Device& device) {
    if (!device.gpu) return "cpu";
    std::string text;
    for (const int gpu : device.gpus())
        text += fmt::format("{}cuda:{}", text.empty() ? "" : ",", gpu);
    return text;
}

std::optional<Device> parse_device(std::string_view word) {
    if (word == "cpu") return Device{};
    Device device;
    for (;;) {
        const std::size_t comma = word.find(',');
        const std::optional<int> gpu = parse_gpu(word.substr(0, comma));
        if (!gpu) return std::nullopt;
        if (device.gpu) {
            device.others.push_back(*gpu);
        } else {
            device.gpu = gpu;
        }
        if (comma == std::string_view::npos) return device;
        word.remove_prefix(comma + 1);
    }
}

}  // namespace paceline
