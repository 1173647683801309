// AheadRows: rows of one request's nodes that a draft in the same segment computes before a batch
// takes them. Each has a KV slot of the request.
//
//     [absent] -- allocate() --> [Allocated] -- computed() --> [Begun]
//                                     |                           |
//                                     +---- take(): in a batch ---+
//                                     +---- free_all() -----------+
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "actors/decoding/slot_allocator.hpp"
#include "actors/decoding/token_tree.hpp"
#include "ipc/base/ids.hpp"

namespace paceline {

struct AheadRow {
    Position position = 0;
    KvSlot slot = kNoSlot;
    std::uint32_t start = 0;       // sub-layers below it are done
    std::uint32_t tensor_row = 0;  // where the draft keeps its residual before `start`
};

class AheadRows {
public:
    /// Precondition: the node was not sent and has no such row. Nothing if no slot is left.
    [[nodiscard]] std::optional<KvSlot> allocate(const TreeNode& node,
                                                 RequestSlots& slots,
                                                 const SlotRule& rule);
    /// Of a node without a row: nothing happens.
    void computed(NodeId node, std::uint32_t start, std::uint32_t tensor_row);
    /// The node's row, whose slot belongs to the caller from now on; nothing: it has none.
    [[nodiscard]] std::optional<AheadRow> take(NodeId node);
    /// No batch takes the others.
    void free_all(RequestSlots& slots);

private:
    std::map<NodeId, AheadRow> rows_;
};

}  // namespace paceline
