// KvLayers: the place of each layer of a segment in its KV cache.
//
// Layers whose attention every row skips (CpuOptions::skipped) have no place; places are
// consecutive:
//
//     layer of the segment   0  1  2  3  4      skipped: the attention of 1 and 3
//     place in the cache     0  -  1  -  2
//
// A plain value; any thread.
#pragma once

#include <vector>

#include "model/rows.hpp"

namespace paceline {

class KvLayers {
public:
    KvLayers() = default;
    /// Of layers [first, last) of a model.
    KvLayers(int first, int last, const SublayerMask& skipped) {
        for (int layer = first; layer < last; ++layer)
            places_.push_back(skipped.skips(2 * layer) ? kNone : count_++);
    }

    /// Layers that have a place.
    [[nodiscard]] int count() const { return count_; }
    /// Precondition: `layer`, counted from the segment's first, has one.
    [[nodiscard]] int place(int layer) const { return places_[static_cast<std::size_t>(layer)]; }

private:
    static constexpr int kNone = -1;

    std::vector<int> places_;
    int count_ = 0;
};

}  // namespace paceline
