// KvStore: keys and values by layer and slot, rounded to the cache's type.
//
// Held as float32 whatever the type: a value that went through the type's rounding is a float32
// as well. Owns layers * slots * 2 * width floats, NaN until written, so that reading a key that no
// row has written gives NaN. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"
#include "model/kv_layout.hpp"

namespace paceline::reference {

/// `value` as the cache would give it back.
[[nodiscard]] float rounded_to(KvType type, float value);

class KvStore {
public:
    /// `width` is kv_heads * head_dim.
    KvStore(KvType type, int layers, std::int32_t slots, int width);

    /// `key` and `value` are [width]. `layer` counts within the segment.
    void write(int layer, KvSlot slot, std::span<const float> key, std::span<const float> value);

    [[nodiscard]] const float* key(int layer, KvSlot slot) const {
        return &keys_[offset(layer, slot)];
    }
    [[nodiscard]] const float* value(int layer, KvSlot slot) const {
        return &values_[offset(layer, slot)];
    }
    [[nodiscard]] std::uint64_t bytes() const {
        return (keys_.size() + values_.size()) * sizeof(float);
    }

private:
    [[nodiscard]] std::size_t offset(int layer, KvSlot slot) const {
        return (static_cast<std::size_t>(layer) * static_cast<std::size_t>(slots_) +
                static_cast<std::size_t>(slot)) *
               width_;
    }

    KvType type_;
    std::int32_t slots_;
    std::size_t width_;
    std::vector<float> keys_;    // [layers, slots, width]
    std::vector<float> values_;  // [layers, slots, width]
};

}  // namespace paceline::reference
