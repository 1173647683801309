#include "actors/self_draft/scratch_rows.hpp"

#include "ipc/base/check.hpp"

namespace paceline {

std::vector<KvSlot> allocate_scratch(RequestSlots& slots, std::int32_t count) {
    std::vector<KvSlot> names;
    for (Position i = 0; i < count; ++i) {
        const Result<KvSlot> slot = slots.allocate(i);
        PACE_CHECK(slot.ok(), "a scratch slot that was reserved");
        names.push_back(slot.value());
    }
    return names;
}

void add_window(std::vector<Row>& rows,
                const CachedText& text,
                Position begin,
                std::span<const KvSlot> scratch,
                const SublayerMask& mask,
                const ModelConfig& model) {
    for (std::size_t i = 0; i < scratch.size(); ++i) {
        const Position position = begin + static_cast<Position>(i);
        rows.push_back({.token = text.tokens[static_cast<std::size_t>(position)],
                        .position = position,
                        .slot = scratch[i],
                        .prefix_slots = text.slots.data(),
                        .prefix_count = begin,
                        .path_slots = scratch.data(),
                        .path_count = static_cast<std::int32_t>(i) + 1,
                        .last = model.sublayers(),
                        .mask = &mask});
    }
}

RunOutcome run_one_layer(Backend& backend,
                         int layer,
                         std::span<const KvSlot> text_slots,
                         Position position,
                         std::span<const KvSlot> scratch,
                         std::span<float> residuals) {
    const std::size_t count = residuals.size() / static_cast<std::size_t>(backend.config().dim);
    PACE_CHECK(count <= scratch.size(), "more residuals than scratch slots");
    std::vector<Row> rows;
    for (const KvSlot& own : scratch.first(count)) {
        rows.push_back({.position = position,
                        .slot = own,
                        .prefix_slots = text_slots.data(),
                        .prefix_count = position,
                        .path_slots = &own,
                        .path_count = 1,
                        .first = 2 * layer,
                        .last = 2 * layer + 2});
    }
    return backend.run_layers(rows, residuals, nullptr);
}

}  // namespace paceline
