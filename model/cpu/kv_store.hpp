// KvStore: keys and values of one segment, in pages of 32 slots (kv_layout.hpp).
//
//     page -> layer -> KV head -> keys [head_dim][32], values [32][head_dim]
//
// Pages come first, so that a short text touches little memory.
//
// Owns the memory, which is reserved at once and becomes resident when it is written. The caller
// assigns slots; a slot is written by one thread at a time.
#pragma once

#include <cstddef>
#include <span>

#include "ipc/base/result.hpp"
#include "model/config.hpp"
#include "model/kernels/cpu/huge_arena.hpp"
#include "model/kernels/cpu/kernel_table.hpp"
#include "model/kv_layers.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

class KvStore {
public:
    KvStore() = default;
    /// Errors: OutOfMemory.
    static Result<KvStore> make(const ModelConfig& config,
                                KvType type,
                                KvLayers layers,
                                std::int32_t slots);

    /// The page `page` of KV head `head` of the segment's layer `layer` (counted from 0 here),
    /// which has keys and values.
    [[nodiscard]] KvPageView page(int layer, std::int32_t page, int head) const {
        return page_at(layers_.place(layer), page, head);
    }
    /// Copies the keys and values that `row` sees in block `block` (positions 32 block ..) into
    /// `to`, each into the offset of its position.
    void gather(int layer, int head, const Row& row, std::int32_t block, KvPageView to) const;
    /// A slot's keys and values, all heads of the layers that have some:  layer -> head -> key,
    ///     value [head_dim].
    void read(KvSlot slot, std::span<std::byte> bytes) const;
    void write(KvSlot slot, std::span<const std::byte> bytes);
    [[nodiscard]] std::size_t slot_bytes() const {
        return static_cast<std::size_t>(layers_.count()) * static_cast<std::size_t>(heads_) * 2 *
               half_page_bytes_ / kKvPageSlots;
    }
    [[nodiscard]] KvType type() const { return type_; }
    [[nodiscard]] std::int32_t slots() const { return pages_ * kKvPageSlots; }
    [[nodiscard]] std::size_t half_page_bytes() const { return half_page_bytes_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

private:
    [[nodiscard]] KvPageView page_at(int place, std::int32_t page, int head) const {
        const std::size_t index =
            (static_cast<std::size_t>(page) * static_cast<std::size_t>(layers_.count()) +
             static_cast<std::size_t>(place)) *
                static_cast<std::size_t>(heads_) +
            static_cast<std::size_t>(head);
        std::uint8_t* keys = base_ + index * 2 * half_page_bytes_;
        return {keys, keys + half_page_bytes_};
    }

    HugeArena arena_;
    std::uint8_t* base_ = nullptr;
    KvType type_ = KvType::F16;
    std::int32_t pages_ = 0;
    KvLayers layers_;
    int heads_ = 0;
    int head_dim_ = 0;
    std::size_t half_page_bytes_ = 0;  // keys (or values) of one page of one head
    std::uint64_t bytes_ = 0;
};

}  // namespace paceline
