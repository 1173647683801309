// Which tensor a data message announces: the loops of both ends ask it of every frame of an edge
// whose slots lie on a device (stage_loop.cpp), and so agree on what is sent and received, and in
// which order.
//
// Constant; any thread. The result is unchecked input from the sender.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "ipc/transport/tensor_pool.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline::msg {

/// Nothing for a message without a tensor, and for bytes that are too few for their kind.
[[nodiscard]] inline std::optional<PoolRef> announced_tensor(std::uint16_t kind,
                                                             std::span<const std::byte> bytes) {
    std::size_t at = 0;
    switch (static_cast<Kind>(kind)) {
        case Kind::Batch:
            at = offsetof(BatchHeader, tensor);
            break;
        case Kind::TensorNote:
            at = offsetof(TensorNote, tensor);
            break;
        case Kind::Proposal:
        case Kind::Verdict:
        case Kind::Stop:
        case Kind::Draw:
        case Kind::Price:
        case Kind::Prefix:
        case Kind::Scores:
        case Kind::OwnTokens:
            return std::nullopt;
    }
    PoolRef slot;
    if (at == 0 || bytes.size() < at + sizeof slot) return std::nullopt;
    std::memcpy(&slot.index, bytes.data() + at, sizeof slot.index);
    std::memcpy(&slot.generation, bytes.data() + at + sizeof slot.index, sizeof slot.generation);
    if (slot.index == kNoTensor) return std::nullopt;
    return slot;
}

// The generation stands behind the slot in both.
static_assert(offsetof(BatchHeader, tensor_generation) ==
              offsetof(BatchHeader, tensor) + sizeof(std::uint32_t));
static_assert(offsetof(TensorNote, tensor_generation) ==
              offsetof(TensorNote, tensor) + sizeof(std::uint32_t));

}  // namespace paceline::msg
