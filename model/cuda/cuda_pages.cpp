// Keys and values of one slot, out of a device and into it.
//
// The bytes are those of the CPU's cache (cpu/kv_store.hpp) for the same KvType:
//
//     layer -> KV head -> key [head_dim], value [head_dim]
//
// On the device a page has the 32 keys of a layer's head one after the other, then its 32 values:
// what belongs to a slot stands at equal distances, and is one copy of that many pieces; through
// pinned memory where the other end is the host's.
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/cuda/cuda_forward.hpp"

namespace paceline {

cuda::Pieces CudaForward::kv_pieces() const {
    const std::size_t bytes =
        static_cast<std::size_t>(cache_.head_dim) * cuda::cache_element_bytes(cache_.type);
    const auto heads =
        static_cast<std::size_t>(cache_.layers) * static_cast<std::size_t>(cache_.kv_heads);
    return {2 * heads, bytes, kKvPageSlots * bytes};
}

std::size_t CudaForward::kv_bytes() const {
    const cuda::Pieces pieces = kv_pieces();
    return pieces.count * pieces.bytes;
}

/// Where the key of the first layer's first head is.
std::byte* CudaForward::kv_at(KvSlot slot) const {
    const cuda::Pieces pieces = kv_pieces();
    return cache_.memory.data() +
           static_cast<std::size_t>(page_of(slot)) * pieces.count * pieces.stride +
           static_cast<std::size_t>(offset_of(slot)) * pieces.bytes;
}

void CudaForward::read_kv(KvSlot slot, KvBytes to) {
    cuda::Pieces rest = kv_pieces();
    if (to.on_device()) {
        stream_.join_on_device(to.data(), kv_at(slot), rest);
        return stream_.finish();
    }
    std::byte* bytes = to.data();
    const std::size_t most = pinned_.bytes() / rest.bytes;
    PACE_CHECK(most > 0, "a key fits where a hidden state does");
    const std::byte* from = kv_at(slot);
    // Usually one turn: logits, which go the same way, are larger.
    for (cuda::Pieces turn = rest; rest.count > 0; rest.count -= turn.count) {
        turn.count = std::min(most, rest.count);
        stream_.to_host(pinned_.data(), from, turn);
        stream_.finish();
        std::memcpy(bytes, pinned_.data(), turn.count * turn.bytes);
        bytes += turn.count * turn.bytes;
        from += turn.count * turn.stride;
    }
}

void CudaForward::write_kv(KvSlot slot, ConstKvBytes from) {
    cuda::Pieces rest = kv_pieces();
    if (from.on_device()) {
        stream_.part_on_device(kv_at(slot), from.data(), rest);
        return stream_.finish();
    }
    const std::byte* bytes = from.data();
    const std::size_t most = pinned_.bytes() / rest.bytes;
    PACE_CHECK(most > 0, "a key fits where a hidden state does");
    std::byte* to = kv_at(slot);
    for (cuda::Pieces turn = rest; rest.count > 0; rest.count -= turn.count) {
        turn.count = std::min(most, rest.count);
        std::memcpy(pinned_.data(), bytes, turn.count * turn.bytes);
        stream_.to_device(to, pinned_.data(), turn);
        stream_.finish();
        bytes += turn.count * turn.bytes;
        to += turn.count * turn.stride;
    }
}

}  // namespace paceline
