#include "model/cpu/kv_store.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace paceline {

Result<KvStore> KvStore::make(const ModelConfig& config,
                              KvType type,
                              KvLayers layers,
                              std::int32_t slots) {
    KvStore store;
    store.type_ = type;
    store.pages_ = pages_for(slots);
    store.layers_ = std::move(layers);
    store.heads_ = config.kv_heads;
    store.head_dim_ = config.head_dim;
    const std::size_t element = type == KvType::F32 ? 4 : 2;
    store.half_page_bytes_ = static_cast<std::size_t>(config.head_dim) * kKvPageSlots * element;
    store.bytes_ = static_cast<std::uint64_t>(store.layers_.count()) *
                   static_cast<std::uint64_t>(store.pages_) *
                   static_cast<std::uint64_t>(config.kv_heads) * 2 * store.half_page_bytes_;
    Result<HugeArena> arena = HugeArena::make(store.bytes_);
    if (!arena) return arena.error();
    store.arena_ = std::move(arena).value();
    store.base_ = reinterpret_cast<std::uint8_t*>(store.arena_.take(store.bytes_));
    return store;
}

namespace {

template <class T>
void copy_slot(KvPageView from, int from_lane, KvPageView to, int to_lane, int head_dim) {
    const auto* keys = reinterpret_cast<const T*>(from.keys) + from_lane;
    auto* out = reinterpret_cast<T*>(to.keys) + to_lane;
    for (int d = 0; d < head_dim; ++d) out[d * kKvPageSlots] = keys[d * kKvPageSlots];
    const std::size_t bytes = static_cast<std::size_t>(head_dim) * sizeof(T);
    std::memcpy(to.values + static_cast<std::size_t>(to_lane) * bytes,
                from.values + static_cast<std::size_t>(from_lane) * bytes, bytes);
}

/// The offset's key, then its value.
template <class T>
void take_slot(KvPageView from, int offset, int head_dim, std::byte* to) {
    const auto* keys = reinterpret_cast<const T*>(from.keys) + offset;
    const std::size_t bytes = static_cast<std::size_t>(head_dim) * sizeof(T);
    for (int d = 0; d < head_dim; ++d, to += sizeof(T))
        std::memcpy(to, keys + static_cast<std::ptrdiff_t>(d) * kKvPageSlots, sizeof(T));
    std::memcpy(to, from.values + static_cast<std::size_t>(offset) * bytes, bytes);
}

template <class T>
void put_slot(const std::byte* from, int offset, int head_dim, KvPageView to) {
    auto* keys = reinterpret_cast<T*>(to.keys) + offset;
    const std::size_t bytes = static_cast<std::size_t>(head_dim) * sizeof(T);
    for (int d = 0; d < head_dim; ++d, from += sizeof(T))
        std::memcpy(keys + static_cast<std::ptrdiff_t>(d) * kKvPageSlots, from, sizeof(T));
    std::memcpy(to.values + static_cast<std::size_t>(offset) * bytes, from, bytes);
}

}  // namespace

void KvStore::read(KvSlot slot, std::span<std::byte> bytes) const {
    std::byte* to = bytes.data();
    for (int place = 0; place < layers_.count(); ++place) {
        for (int head = 0; head < heads_; ++head, to += 2 * half_page_bytes_ / kKvPageSlots) {
            const KvPageView from = page_at(place, page_of(slot), head);
            type_ == KvType::F32 ? take_slot<std::uint32_t>(from, offset_of(slot), head_dim_, to)
                                 : take_slot<std::uint16_t>(from, offset_of(slot), head_dim_, to);
        }
    }
}

void KvStore::write(KvSlot slot, std::span<const std::byte> bytes) {
    const std::byte* from = bytes.data();
    for (int place = 0; place < layers_.count(); ++place) {
        for (int head = 0; head < heads_; ++head, from += 2 * half_page_bytes_ / kKvPageSlots) {
            const KvPageView to = page_at(place, page_of(slot), head);
            type_ == KvType::F32 ? put_slot<std::uint32_t>(from, offset_of(slot), head_dim_, to)
                                 : put_slot<std::uint16_t>(from, offset_of(slot), head_dim_, to);
        }
    }
}

void KvStore::gather(int layer, int head, const Row& row, std::int32_t block, KvPageView to) const {
    const Position begin = block * kKvPageSlots;
    const Position end = std::min(begin + kKvPageSlots, row.position + 1);
    for (Position p = begin; p < end; ++p) {
        const KvSlot slot = row.key_slot(p);
        const KvPageView from = page(layer, page_of(slot), head);
        if (type_ == KvType::F32) {
            copy_slot<std::uint32_t>(from, offset_of(slot), to, p - begin, head_dim_);
        } else {
            copy_slot<std::uint16_t>(from, offset_of(slot), to, p - begin, head_dim_);
        }
    }
}

}  // namespace paceline
