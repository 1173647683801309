#include "actors/segment/scheduling/batch_writer.hpp"

#include <optional>
#include <utility>

#include "ipc/base/faults.hpp"

namespace paceline {

void BatchWriter::add(const SchedulableRequest& chosen) {
    SchedulerEntry& entry = *chosen.entry;
    const bool prefills = chosen.prefills();
    if (chosen.granted == 0) {
        // A prompt had its turn, and waits for shorter ones: it takes no place of others for that.
        entry.passed = prefills ? 0 : entry.passed + 1;
        return;
    }
    const auto base = static_cast<Position>(entry.state->slots().size());
    const bool again = prefills && static_cast<std::size_t>(base) < entry.slots.committed().size();
    const std::uint32_t rows = prefills ? add_prefill(entry, chosen.granted) : add_verify(chosen);
    if (rows == 0) return pages_.block(entry, static_cast<std::uint32_t>(place_.running));
    written_.batch.parts.push_back(
        {.request = entry.state->request(),
         .attempt = entry.state->attempt(),
         .batch = BatchId{entry.next_batch++},
         .kind = prefills ? msg::BatchKind::Prefill : msg::BatchKind::Verify,
         .base = base,
         .rows = rows,
         .hold = 0,
         .last = StageId{static_cast<std::uint16_t>(again ? entry.page_use.lost_to : 0)}});
    entry.passed = 0;
    entry.served = place_.number;
    if (prefills) entry.wait.prefill_sent(place_.now);
}

std::uint32_t BatchWriter::add_prefill(SchedulerEntry& entry, std::uint32_t rows) {
    const std::vector<TokenId>& text = entry.state->text();
    const std::optional<RetainedBy>& supplier = entry.page_use.supplier;
    const std::size_t begin = entry.state->slots().size();
    for (std::size_t position = begin; position < begin + rows; ++position) {
        const bool again = position < entry.slots.committed().size();
        const Result<KvSlot> slot = again ? Result<KvSlot>{entry.slots.committed()[position]}
                                          : entry.slots.allocate(static_cast<Position>(position));
        if (!slot) return static_cast<std::uint32_t>(position - begin);
        if (!again) entry.slots.commit(slot.value());
        if (planted(PlantedBug::PrefixUnproven)) pages_.publish(entry);
        const bool retained = again && supplier && slot.value() < supplier->slots;
        written_.batch.rows.push_back(
            {.node = TokenTree::kNoNode,
             .parent = msg::kNoParent,
             .token = text[position],
             .position = static_cast<Position>(position),
             .slot = slot.value(),
             .start = static_cast<std::uint16_t>(retained ? supplier->end : 0)});
    }
    return rows;
}

std::uint32_t BatchWriter::add_verify(const SchedulableRequest& chosen) {
    SchedulerEntry& entry = *chosen.entry;
    TokenTree& tree = entry.state->tree();
    const SlotRule candidate = RequestPages::candidate_rule(place_.running);
    std::vector<NodeId> sent;
    for (std::uint32_t i = 0; i < chosen.granted; ++i) {
        const TreeNode& node = *tree.find(chosen.order.nodes[i]);
        const TreeNode* above = tree.find(node.parent);
        const bool is_root = node.id == tree.root().id;
        if (!is_root && !above->sent()) continue;  // its parent found no slot
        const std::optional<AheadRow> ahead = entry.ahead.take(node.id);
        const Result<KvSlot> slot =
            ahead ? Result<KvSlot>{ahead->slot}
                  : entry.slots.allocate(node.position, is_root ? SlotRule{} : candidate);
        if (!slot) continue;  // it waits, and what is below it
        sent.push_back(node.id);
        written_.batch.rows.push_back(tree.send(node.id, slot.value()));
        if (!ahead) continue;
        written_.batch.rows.back().start = static_cast<std::uint16_t>(ahead->start);
        written_.batch.rows.back().tensor_row = ahead->tensor_row;
    }
    if (sent.empty()) return 0;
    if (entry.wait.verify_sent(entry.in_flight.empty(), place_.now)) ++written_.waits_expired;
    if (entry.open) written_.resolved.push_back(*std::exchange(entry.open, std::nullopt));
    const auto rows = static_cast<std::uint32_t>(sent.size());
    entry.in_flight.push_back(std::move(sent));
    return rows;
}

}  // namespace paceline
