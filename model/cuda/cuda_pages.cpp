// Keys and values of one slot, out of a device and into it.
//
// The bytes are those of the CPU's cache (cpu/kv_store.hpp) for the same KvType:
//
//     layer -> KV head -> key [head_dim], value [head_dim]
//
// On a device a page has the 32 keys of a layer's head one after the other, then its 32 values:
// what belongs to a slot stands at equal distances, and is one copy of that many pieces; through
// pinned memory where the other end is the host's. Of several devices each has some heads of every
// layer, which are a copy of their own.
#include <algorithm>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/cuda/cuda_forward.hpp"

namespace paceline {

std::size_t CudaForward::kv_bytes() const {
    std::size_t heads = 0;
    for (const std::unique_ptr<CudaRank>& rank : ranks_)
        heads += static_cast<std::size_t>(rank->cache.kv_heads);
    const CudaCache& cache = first_.cache;
    return 2 * heads * static_cast<std::size_t>(cache.layers) *
           static_cast<std::size_t>(cache.head_dim) * cuda::cache_element_bytes(cache.type);
}

/// In the order of the slot's bytes.
std::vector<CudaForward::KvRun> CudaForward::kv_runs(KvSlot slot) const {
    const CudaCache& any = first_.cache;
    const std::size_t bytes =
        static_cast<std::size_t>(any.head_dim) * cuda::cache_element_bytes(any.type);
    const auto layers = static_cast<std::size_t>(any.layers);
    const std::size_t layers_a_run = ranks_.size() == 1 ? layers : 1;
    std::vector<KvRun> runs;
    for (std::size_t layer = 0; layer < layers; layer += layers_a_run) {
        for (const std::unique_ptr<CudaRank>& rank : ranks_) {
            const std::size_t pieces_a_layer = 2 * static_cast<std::size_t>(rank->cache.kv_heads);
            const cuda::Pieces pieces{layers_a_run * pieces_a_layer, bytes, kKvPageSlots * bytes};
            // Where the key of the layer's first head is.
            std::byte* at = rank->cache.memory.data() +
                            (static_cast<std::size_t>(page_of(slot)) * layers + layer) *
                                pieces_a_layer * pieces.stride +
                            static_cast<std::size_t>(offset_of(slot)) * bytes;
            runs.push_back({rank.get(), at, pieces});
        }
    }
    return runs;
}

/// Calls copy(run, pinned) for parts of `runs` until pinned memory is full, then turn(bytes), and
/// so on. Usually one turn: logits, which go the same way, are larger.
template <class Copy, class Turn>
void CudaForward::in_turns(std::vector<KvRun> runs, const Copy& copy, const Turn& turn) {
    PACE_CHECK(runs.empty() || runs.front().pieces.bytes <= pinned_.bytes(),
               "a key fits where a hidden state does");
    std::size_t used = 0;
    for (KvRun& run : runs) {
        while (run.pieces.count > 0) {
            const std::size_t most = (pinned_.bytes() - used) / run.pieces.bytes;
            if (most == 0) {
                turn(used);
                used = 0;
                continue;
            }
            KvRun now = run;
            now.pieces.count = std::min(most, run.pieces.count);
            copy(now, pinned_.data() + used);
            used += now.pieces.count * now.pieces.bytes;
            run.pieces.count -= now.pieces.count;
            run.at += now.pieces.count * now.pieces.stride;
        }
    }
    if (used > 0) turn(used);
}

void CudaForward::read_kv(KvSlot slot, KvBytes to) {
    std::byte* bytes = to.data();
    if (to.on_device()) {
        // Foreign memory is mapped for the first device alone, which reaches the others.
        for (const KvRun& run : kv_runs(slot)) {
            stream_.join_on_device(bytes, run.at, run.pieces);
            bytes += run.pieces.count * run.pieces.bytes;
        }
        return finish_all();
    }
    in_turns(
        kv_runs(slot),
        [](const KvRun& run, std::byte* pinned) {
            run.rank->stream.to_host(pinned, run.at, run.pieces);
        },
        [&](std::size_t count) {
            finish_all();
            std::memcpy(bytes, pinned_.data(), count);
            bytes += count;
        });
}

void CudaForward::write_kv(KvSlot slot, ConstKvBytes from) {
    const std::byte* bytes = from.data();
    if (from.on_device()) {
        for (const KvRun& run : kv_runs(slot)) {
            stream_.part_on_device(run.at, bytes, run.pieces);
            bytes += run.pieces.count * run.pieces.bytes;
        }
        return finish_all();
    }
    in_turns(
        kv_runs(slot),
        [&](const KvRun& run, std::byte* pinned) {
            const std::size_t count = run.pieces.count * run.pieces.bytes;
            std::memcpy(pinned, bytes, count);
            bytes += count;
            run.rank->stream.to_device(run.at, pinned, run.pieces);
        },
        [&](std::size_t /*count*/) { finish_all(); });
}

}  // namespace paceline
