// SchedulerEntry: what the BatchScheduler and its parts keep of one request.
//
// Plain data beside the request's state, which the segment owns together with it. The slots give
// their pages back when the entry goes, so it goes before the pages (RequestPages). It stays where
// it was made: its wait borrows from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/decoding/retained_states.hpp"
#include "actors/decoding/slot_allocator.hpp"
#include "actors/protocol/request_state.hpp"
#include "actors/segment/scheduling/ahead_rows.hpp"
#include "actors/segment/scheduling/draft_wait.hpp"
#include "actors/segment/scheduling/future_candidates.hpp"
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

/// How a request stands with the cache: RequestPages.
struct PageUse {
    // KvPages::releases() when no further row found a slot: blocked until it changes, or a
    // verdict comes.
    std::optional<std::uint64_t> blocked_at = {};
    bool looked_up = false;                   // its prefix, in the cache
    std::uint32_t lost_to = 0;                // segments up to this one get its cached prefix again
    std::optional<RetainedBy> supplier = {};  // which has the states of these rows
    bool proven = false;  // a verdict came: all segments have the keys of its prompt
    std::optional<RequestId> leader = {};  // computes the same prefix: waited for
};

struct SchedulerEntry {
    SchedulerEntry(std::shared_ptr<RequestState> the_state,
                   RequestSlots the_slots,
                   const DraftWaitRule& rule,
                   Micros now)
        : state{std::move(the_state)},
          slots{std::move(the_slots)},
          wait{rule, *state, now},
          decided{now} {}
    SchedulerEntry(const SchedulerEntry&) = delete;
    SchedulerEntry& operator=(const SchedulerEntry&) = delete;

    /// Rows of the prompt up to its end, or to that of a prefix that not all segments compute.
    [[nodiscard]] std::size_t prefill_left() const {
        const std::size_t done = state->slots().size();
        const std::size_t cached = slots.committed().size();
        return (done < cached ? cached : state->text().size() - 1) - done;
    }
    /// Its tokens are drawn: they are not the most probable ones.
    [[nodiscard]] bool draws() const { return !state->spec().sampling.greedy(); }

    std::shared_ptr<RequestState> state;
    RequestSlots slots;
    PageUse page_use = {};
    DraftWait wait;
    FutureCandidates future = {};
    AheadRows ahead = {};
    std::deque<std::vector<NodeId>> in_flight = {};  // nodes of verify parts without verdict
    std::uint32_t next_batch = 0;
    Micros decided;                    // when the last verdict came
    std::optional<Outcome> open = {};  // of the current root, until it is sent
    std::uint64_t passed = 0;          // batches in a row that had no room for it
    std::uint64_t served = 0;          // the batch that it was last part of
};

using SchedulerEntries = std::map<RequestId, SchedulerEntry>;

}  // namespace paceline
