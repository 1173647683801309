#include "actors/segment/scheduling/ahead_rows.hpp"

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {

std::optional<KvSlot> AheadRows::allocate(const TreeNode& node,
                                          RequestSlots& slots,
                                          const SlotRule& rule) {
    PACE_CHECK(!node.sent() && !rows_.contains(node.id),
               "a node is computed ahead that was sent, or is computed already");
    const Result<KvSlot> slot = slots.allocate(node.position, rule);
    if (!slot) return std::nullopt;
    rows_[node.id] = {.position = node.position, .slot = slot.value()};
    return slot.value();
}

void AheadRows::computed(NodeId node, std::uint32_t start, std::uint32_t tensor_row) {
    const auto row = rows_.find(node);
    if (row == rows_.end()) return;
    row->second.start = start + (planted(PlantedBug::VerifyStartsLate) ? 1 : 0);
    row->second.tensor_row = tensor_row;
}

std::optional<AheadRow> AheadRows::take(NodeId node) {
    const auto row = rows_.find(node);
    if (row == rows_.end()) return std::nullopt;
    const AheadRow taken = row->second;
    rows_.erase(row);
    return taken;
}

void AheadRows::free_all(RequestSlots& slots) {
    for (const auto& [node, row] : rows_) {
        if (!planted(PlantedBug::AheadSlotsLeak)) slots.free(row.position, row.slot);
    }
    rows_.clear();
}

}  // namespace paceline
