// SchedulerEntry: what the BatchScheduler and its RequestPages keep of one request.
//
// Plain data beside the request's state, which the segment owns together with it. The slots give
// their pages back when the entry goes, so it goes before the pages (RequestPages).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/decoding/retained_states.hpp"
#include "actors/decoding/slot_allocator.hpp"
#include "actors/protocol/request_state.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

/// Which source had proposed the new root of a verdict, if any.
struct Outcome {
    bool prepared = false;
    msg::Origin origin = msg::Origin::Trunk;
    bool open = false;  // lockstep: the round that may hold it is still to come; take_resolved()
};

inline constexpr Position kNoRoot = -1;

/// How far the draft has come: the newest root for which it sent each state.
struct ReceivedRoots {
    Position anything = kNoRoot;
    Position halfway = kNoRoot;
    Position complete = kNoRoot;
};

/// A node that a draft computes ahead of its batch.
struct AheadRow {
    Position position = 0;
    KvSlot slot = kNoSlot;
    std::uint32_t start = 0;
    std::uint32_t tensor_row = 0;
};

/// What the scheduler keeps of one request.
struct SchedulerEntry {
    std::shared_ptr<RequestState> state;
    RequestSlots slots;
    std::uint32_t next_batch = 0;
    std::deque<std::vector<NodeId>> in_flight = {};  // nodes of verify parts without verdict
    std::map<NodeId, AheadRow> ahead_rows = {};      // of nodes that are not in a batch yet
    ReceivedRoots received = {};
    Position round_root = kNoRoot;          // of the last verify batch; kNoRoot: there was none
    std::uint32_t silent = 0;               // waits for the draft in a row that timed out
    std::uint32_t empty = 0;                // its answers in a row without a candidate
    Micros decided{0};                      // when the last verdict came
    Micros wait_until{0};                   // for the draft's proposal before a batch
    std::optional<Micros> half_until = {};  // for its Halfway, while a batch is held for it
    std::optional<Outcome> open = {};       // of the current root, until it is sent
    // KvPages::releases() when no further row found a slot: blocked until it changes, or a
    // verdict comes.
    std::optional<std::uint64_t> blocked_at = {};
    std::uint64_t passed = 0;                 // batches in a row that had no room for it
    std::uint64_t served = 0;                 // the batch that it was last part of
    bool looked_up = false;                   // its prefix, in the cache
    std::uint32_t lost_to = 0;                // segments up to this one get its cached prefix again
    std::optional<RetainedBy> supplier = {};  // which has the states of these rows
    bool proven = false;  // a verdict came: all segments have the keys of its prompt
    std::optional<RequestId> leader = {};  // computes the same prefix: waited for
    // The newest proposals for roots that are still to come, by source.
    std::array<std::optional<msg::Proposal>, 2> ahead = {};
    std::vector<msg::Draw> drawn_ahead = {};  // likewise, in the order in which they came

    [[nodiscard]] const SpeculationLimits& limits() const { return state->spec().speculation; }
};

using SchedulerEntries = std::map<RequestId, SchedulerEntry>;

}  // namespace paceline
