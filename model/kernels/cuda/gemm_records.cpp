#include "model/kernels/cuda/gemm_records.hpp"

#include <cstring>

namespace paceline::cuda {
namespace {

constexpr std::size_t kLaneBytes = 16;
constexpr std::size_t kValueBytes = 32 * kLaneBytes;

void put_half(std::byte* at, std::uint16_t value) {
    std::memcpy(at, &value, sizeof value);
}

}  // namespace

void put_group(
    WeightType type, const QuantGroup& from, int o, int group, int steps, std::byte* records) {
    const int groups_a_step = step_inputs(type) / 32;
    const auto tile = static_cast<std::size_t>(o / kTileOutputs);
    const auto step = static_cast<std::size_t>(group / groups_a_step);
    const auto part = static_cast<std::size_t>(group % groups_a_step);
    const auto g = static_cast<std::size_t>(o % 8);
    const auto half = static_cast<std::size_t>(o % kTileOutputs / 8);  // output g or g + 8
    std::byte* record =
        records + (tile * static_cast<std::size_t>(steps) + step) * record_bytes(type);
    for (std::size_t t = 0; t < 4; ++t) {
        std::byte* lane = record + (4 * g + t) * kLaneBytes;
        for (std::size_t i = 0; i < 8; ++i) {
            const auto q = static_cast<std::uint8_t>(from.q[8 * t + i]);
            if (type == WeightType::Q4) {
                const auto nibble = static_cast<std::size_t>(input_nibble(static_cast<int>(i)));
                std::byte& pair = lane[8 * part + 4 * half + nibble / 2];
                pair |= static_cast<std::byte>(q << (4 * (nibble % 2)));
            } else {
                lane[8 * half + i] = static_cast<std::byte>(q);
            }
        }
    }
    if (type == WeightType::Q4) {
        std::byte* scales = record + kValueBytes + g * 16 + part * 8;
        put_half(scales + 2 * half, from.scale);
        put_half(scales + 4 + 2 * half, from.minimum);
    } else {
        put_half(record + kValueBytes + g * 4 + 2 * half, from.scale);
    }
}

}  // namespace paceline::cuda
