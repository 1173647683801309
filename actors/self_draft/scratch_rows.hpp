// Scratch rows: rows that compute tokens of a text once more, in KV slots of their own.
//
//     keys that a row sees     before the first scratch row    from there on
//     add_window()             the text's                      those of the window's rows up to
//                                                              itself
//     run_one_layer()          the text's                      its own
//
// So neither the text nor its keys change, and no row sees what an earlier call left in a scratch
// slot. Pure apart from the backend. Slots and masks are borrowed until the rows have run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "actors/decoding/slot_allocator.hpp"
#include "model/backend.hpp"

namespace paceline {

/// The tokens of a text by position, and the slots of their keys as far as they are in the cache.
struct CachedText {
    std::span<const TokenId> tokens = {};
    std::span<const KvSlot> slots = {};
};

/// Slots for `count` scratch rows. Precondition: `slots` were made for so many positions.
[[nodiscard]] std::vector<KvSlot> allocate_scratch(RequestSlots& slots, std::int32_t count);

/// Appends a row for each scratch slot: the tokens from `begin` on, as a draft with `mask` computes
/// them that starts there. Preconditions: the text has the tokens, and the keys before `begin`.
void add_window(std::vector<Row>& rows,
                const CachedText& text,
                Position begin,
                std::span<const KvSlot> scratch,
                const SublayerMask& mask,
                const ModelConfig& model);

/// One layer on residuals [rows, dim] in place, all of them at `position`.
/// Preconditions: a scratch slot for each; `text_slots` has those of the keys before `position`.
[[nodiscard]] RunOutcome run_one_layer(Backend& backend,
                                       int layer,
                                       std::span<const KvSlot> text_slots,
                                       Position position,
                                       std::span<const KvSlot> scratch,
                                       std::span<float> residuals);

}  // namespace paceline
