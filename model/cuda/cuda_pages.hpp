// CudaPages: keys and values of one slot, out of a device and into it.
//
// The bytes are those of the CPU's cache (cpu/kv_store.hpp) for the same KvType:
//
//     layer -> KV head -> key [head_dim], value [head_dim]
//
// On a device a page has the 32 keys of a layer's head one after the other, then its 32 values:
// what belongs to a slot stands at equal distances, and is one copy of that many pieces; through
// pinned memory where the other end is the host's. Of several devices each has some heads of every
// layer, which are a copy of their own.
//
// Borrows the group and pinned memory that holds a hidden state. Used by one thread.
#pragma once

#include <cstddef>
#include <vector>

#include "model/cuda/cuda_group.hpp"
#include "model/kernels/cuda/runtime.hpp"

namespace paceline {

class CudaPages {
public:
    CudaPages(const CudaGroup& group, cuda::PinnedMemory& pinned)
        : group_{group}, pinned_{pinned} {}

    /// Of one slot.
    [[nodiscard]] std::size_t bytes() const;
    void read(KvSlot slot, KvBytes to);
    void write(KvSlot slot, ConstKvBytes from);

private:
    /// Pieces of a slot that follow one another in its bytes, in the memory of one device.
    struct KvRun {
        CudaRank* rank;
        std::byte* at;
        cuda::Pieces pieces;
    };
    [[nodiscard]] std::vector<KvRun> runs(KvSlot slot) const;
    template <class Copy, class Turn>
    void in_turns(std::vector<KvRun> pieces, const Copy& copy, const Turn& turn);

    const CudaGroup& group_;
    cuda::PinnedMemory& pinned_;
};

}  // namespace paceline
