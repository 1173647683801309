#include "model/cuda/cuda_pages.hpp"

#include <algorithm>
#include <cstring>

#include "ipc/base/check.hpp"

namespace paceline {

std::size_t CudaPages::bytes() const {
    std::size_t heads = 0;
    for (const std::unique_ptr<CudaRank>& rank : group_.ranks())
        heads += static_cast<std::size_t>(rank->cache.kv_heads);
    const CudaCache& cache = group_.first().cache;
    return 2 * heads * static_cast<std::size_t>(cache.layers) *
           static_cast<std::size_t>(cache.head_dim) * cuda::cache_element_bytes(cache.type);
}

/// In the order of the slot's bytes.
std::vector<CudaPages::KvRun> CudaPages::runs(KvSlot slot) const {
    const CudaCache& any = group_.first().cache;
    const std::size_t bytes =
        static_cast<std::size_t>(any.head_dim) * cuda::cache_element_bytes(any.type);
    const auto layers = static_cast<std::size_t>(any.layers);
    const std::size_t layers_a_run = group_.ranks().size() == 1 ? layers : 1;
    std::vector<KvRun> found;
    for (std::size_t layer = 0; layer < layers; layer += layers_a_run) {
        for (const std::unique_ptr<CudaRank>& rank : group_.ranks()) {
            const std::size_t pieces_a_layer = 2 * static_cast<std::size_t>(rank->cache.kv_heads);
            const cuda::Pieces pieces{layers_a_run * pieces_a_layer, bytes, kKvPageSlots * bytes};
            // Where the key of the layer's first head is.
            std::byte* at = rank->cache.memory.data() +
                            (static_cast<std::size_t>(page_of(slot)) * layers + layer) *
                                pieces_a_layer * pieces.stride +
                            static_cast<std::size_t>(offset_of(slot)) * bytes;
            found.push_back({rank.get(), at, pieces});
        }
    }
    return found;
}

/// Calls copy(run, pinned) for parts of `pieces` until pinned memory is full, then turn(bytes), and
/// so on. Usually one turn: logits, which go the same way, are larger.
template <class Copy, class Turn>
void CudaPages::in_turns(std::vector<KvRun> pieces, const Copy& copy, const Turn& turn) {
    PACE_CHECK(pieces.empty() || pieces.front().pieces.bytes <= pinned_.bytes(),
               "a key fits where a hidden state does");
    std::size_t used = 0;
    for (KvRun& run : pieces) {
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

void CudaPages::read(KvSlot slot, KvBytes to) {
    std::byte* bytes = to.data();
    if (to.on_device()) {
        // Foreign memory is mapped for the first device alone, which reaches the others.
        for (const KvRun& run : runs(slot)) {
            group_.first().stream.join_on_device(bytes, run.at, run.pieces);
            bytes += run.pieces.count * run.pieces.bytes;
        }
        return group_.finish();
    }
    in_turns(
        runs(slot),
        [](const KvRun& run, std::byte* pinned) {
            run.rank->stream.to_host(pinned, run.at, run.pieces);
        },
        [&](std::size_t count) {
            group_.finish();
            std::memcpy(bytes, pinned_.data(), count);
            bytes += count;
        });
}

void CudaPages::write(KvSlot slot, ConstKvBytes from) {
    const std::byte* bytes = from.data();
    if (from.on_device()) {
        for (const KvRun& run : runs(slot)) {
            group_.first().stream.part_on_device(run.at, bytes, run.pieces);
            bytes += run.pieces.count * run.pieces.bytes;
        }
        return group_.finish();
    }
    in_turns(
        runs(slot),
        [&](const KvRun& run, std::byte* pinned) {
            const std::size_t count = run.pieces.count * run.pieces.bytes;
            std::memcpy(pinned, bytes, count);
            bytes += count;
            run.rank->stream.to_device(run.at, pinned, run.pieces);
        },
        [&](std::size_t /*count*/) { group_.finish(); });
}

}  // namespace paceline
