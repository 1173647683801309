#include "ipc/device/nccl.hpp"

#include <fmt/core.h>

namespace paceline {

std::string nccl_text(NcclResult result) {
    static constexpr std::array kWords = {"success",        "CUDA error",       "system error",
                                          "internal error", "invalid argument", "invalid usage",
                                          "remote error",   "in progress"};
    const auto number = static_cast<std::size_t>(result);
    return fmt::format("{} ({})", number < kWords.size() ? kWords[number] : "unknown result",
                       number);
}

std::string nccl_version_text(int version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace paceline
