// FeatureSlots: the features of an EAGLE draft, one row for each KV slot: hidden states of the
// target after some of its layers, which the row behind a slot's token reads beside its own token.
//
//     give()      the target's states of the token in a slot: its feature until forget()
//     forget()    the slot gets another token: its feature is what the draft makes of it
//
// A slot that was given none has the draft's own output at its token. Features lie under the slots
// of the keys, so commits, rollbacks and shared prefixes need nothing of their own here.
// Not while a call runs. Threads: as the backend that has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/base/ids.hpp"

namespace paceline {

/// Of all texts of a draft: features that it keeps until a pass puts them into their slots.
inline constexpr std::int32_t kFeaturesKeptMax = 2048;

class FeatureSlots {
public:
    FeatureSlots() = default;
    FeatureSlots(const FeatureSlots&) = delete;
    FeatureSlots& operator=(const FeatureSlots&) = delete;
    virtual ~FeatureSlots() = default;

    /// Numbers of one token: the states of all layers that are read, one after the other.
    [[nodiscard]] virtual std::size_t width() const = 0;
    /// Preconditions: a slot that exists, width() numbers.
    virtual void give(KvSlot slot, std::span<const float> states) = 0;
    virtual void forget(KvSlot slot) = 0;
    /// Whether the slot's feature is the target's.
    [[nodiscard]] virtual bool given(KvSlot slot) const = 0;
    /// The slot's feature as the next row reads it, [dim]; valid until the next call.
    [[nodiscard]] virtual std::span<const float> feature(KvSlot slot) = 0;
};

}  // namespace paceline
