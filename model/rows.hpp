// Row: the input of the layers for one node of a token tree, and the keys that it sees.
//
// A row has a token (or a hidden state), a position, a KV slot to write, and visible keys. The keys
// are given as KV slots in the order of their positions, in two parts, so that the rows of a
// request share the long part:
//
//     positions   0 ............. prefix_count-1 | prefix_count ........ position
//     slots       prefix_slots[0 .. prefix_count) | path_slots[0 .. path_count)
//
// The last visible key is the row's own: prefix_count + path_count == position + 1.
// Rows of a prefill chunk or of a chain need no path: the prefix table has the slots of the rows
// before them in the same call too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

/// The sub-layers that a row skips. Sub-layer 2l is the attention of layer l, 2l+1 its MLP. A
/// skipped sub-layer does not change the residual and writes no keys or values.
class SublayerMask {
public:
    SublayerMask() = default;
    void skip(int sublayer) {
        const auto word = static_cast<std::size_t>(sublayer) / 64;
        if (skipped_.size() <= word) skipped_.resize(word + 1, 0);
        skipped_[word] |= std::uint64_t{1} << (static_cast<unsigned>(sublayer) % 64U);
    }
    [[nodiscard]] bool skips_any() const { return !skipped_.empty(); }
    [[nodiscard]] bool skips(int sublayer) const {
        const auto word = static_cast<std::size_t>(sublayer) / 64;
        return word < skipped_.size() &&
               ((skipped_[word] >> (static_cast<unsigned>(sublayer) % 64U)) & 1U) != 0;
    }

private:
    std::vector<std::uint64_t> skipped_;
};

struct Row {
    TokenId token = 0;  // read if first == 0; otherwise the hidden state is the input
    Position position = 0;
    KvSlot slot = 0;  // of this row's keys and values (its own or a scratch slot)
    const KvSlot* prefix_slots = nullptr;
    std::int32_t prefix_count = 0;
    const KvSlot* path_slots = nullptr;
    std::int32_t path_count = 0;
    std::int32_t first = 0;  // sub-layers [first, last) run for this row
    std::int32_t last = 0;
    const SublayerMask* mask = nullptr;  // nullptr: all sub-layers of [first, last)
    float* stack = nullptr;  // if set: [last - first, dim], the residual after each sub-layer
    const SublayerMask* stack_mask = nullptr;  // if set: the stack has no places for what it skips
    bool given = false;  // of a row with first == 0: its hidden state is the input, not its token's
                         // embedding

    /// The residual after `sublayer` in the stack, in units of dim; nothing: it has no place there.
    [[nodiscard]] std::optional<std::size_t> stack_place(int sublayer) const {
        if (stack == nullptr || sublayer < first || sublayer >= last) return std::nullopt;
        if (stack_mask == nullptr) return static_cast<std::size_t>(sublayer - first);
        if (stack_mask->skips(sublayer)) return std::nullopt;
        std::size_t place = 0;
        for (int s = first; s < sublayer; ++s) place += stack_mask->skips(s) ? 0 : 1;
        return place;
    }
    [[nodiscard]] KvSlot key_slot(Position p) const {
        return p < prefix_count ? prefix_slots[p] : path_slots[p - prefix_count];
    }
};

}  // namespace paceline
