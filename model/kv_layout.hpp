// The geometry of KV slots: pages of 32, one page per attention block; and what a slot holds.
//
//     slot = page * kKvPageSlots + offset
//
// A key may live in any slot; the kernels are fastest where the key of position p lives in offset
// p % kKvPageSlots of a page whose other offsets hold the rest of p's block (its "home" slot).
// The bits are the same for any slot: a key's offset in the summation is its position modulo the
// page size. Entries are never moved: a commit only keeps or frees slots.
#pragma once

#include <cstdint>

#include "ipc/base/ids.hpp"

namespace paceline {

inline constexpr std::int32_t kKvPageSlots = 32;

/// How a key's and a value's numbers are stored.
enum class KvType : std::uint8_t { F32, F16, BF16 };

[[nodiscard]] constexpr std::int32_t page_of(KvSlot slot) {
    return slot / kKvPageSlots;
}
[[nodiscard]] constexpr std::int32_t offset_of(KvSlot slot) {
    return slot % kKvPageSlots;
}
/// Pages that hold `positions` keys in home slots.
[[nodiscard]] constexpr std::int32_t pages_for(std::int32_t positions) {
    return (positions + kKvPageSlots - 1) / kKvPageSlots;
}

}  // namespace paceline
