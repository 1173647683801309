// SelfDraftHost: what the segment that drafts for itself gives to its draft: its context, whether a
// request is still computed for, and KV slots for rows ahead of their batch.
//
// The segment implements DraftSlots (its BatchScheduler) and fills in the rest. Threads: the
// actor's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "actors/decoding/slot_allocator.hpp"
#include "actors/protocol/request_state.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// KV slots for rows that are computed before a batch takes their nodes.
class DraftSlots {
public:
    virtual ~DraftSlots() = default;

    /// A slot for a node that a draft computes ahead of its batch; it belongs to the node from now
    /// on. Nothing if none is left. If no batch takes the node, the next verdict frees the slot.
    [[nodiscard]] virtual std::optional<KvSlot> allocate_ahead(RequestId request, NodeId node) = 0;
    /// Such a node's sub-layers below `start` are done, bit for bit as the target computes them;
    /// its residual before `start` is row `tensor_row` of the rows that the caller keeps for the
    /// request.
    virtual void computed_ahead(RequestId request,
                                NodeId node,
                                std::uint32_t start,
                                std::uint32_t tensor_row) = 0;
    /// Slots that belong to no request, for rows that are never committed. Errors: OutOfMemory.
    [[nodiscard]] virtual Result<RequestSlots> scratch_slots(std::int32_t count) = 0;

protected:
    DraftSlots() = default;
    DraftSlots(const DraftSlots&) = default;
    DraftSlots& operator=(const DraftSlots&) = default;
};

struct SelfDraftHost {
    DraftSlots& slots;
    /// Whether nothing more is computed for a request.
    std::function<bool(const RequestState& state)> gone;
    StageContext* context = nullptr;  // from SelfDraft::start() on
};

}  // namespace paceline
