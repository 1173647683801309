#include "model/reference/kv_store.hpp"

#include <limits>

#include "ipc/base/check.hpp"
#include "model/weights/tensor.hpp"

namespace paceline::reference {

float rounded_to(KvType type, float value) {
    switch (type) {
        case KvType::F32:
            return value;
        case KvType::F16:
            return half_to_float(float_to_half(value));
        case KvType::BF16:
            return bfloat_to_float(float_to_bfloat(value));
    }
    PACE_CHECK(false, "unknown KV type");
}

KvStore::KvStore(KvType type, int layers, std::int32_t slots, int width)
    : type_{type}, slots_{slots}, width_{static_cast<std::size_t>(width)} {
    PACE_CHECK(layers >= 0 && slots > 0 && width > 0, "a KV store has slots");
    const std::size_t floats =
        static_cast<std::size_t>(layers) * static_cast<std::size_t>(slots) * width_;
    keys_.assign(floats, std::numeric_limits<float>::quiet_NaN());
    values_.assign(floats, std::numeric_limits<float>::quiet_NaN());
}

void KvStore::write(int layer,
                    KvSlot slot,
                    std::span<const float> key,
                    std::span<const float> value) {
    PACE_CHECK(key.size() == width_ && value.size() == width_, "keys and values are [width]");
    const std::size_t start = offset(layer, slot);
    for (std::size_t i = 0; i < width_; ++i) {
        keys_[start + i] = rounded_to(type_, key[i]);
        values_[start + i] = rounded_to(type_, value[i]);
    }
}

}  // namespace paceline::reference
