// Dispatcher: decides what the target works on next. Part of the first segment.
//
// It grows the token tree from proposals, names nodes and KV slots, and forms waves. The life of
// a request here:
//
//            begin            text in the cache         proposal, or waited enough
//   [absent] -----> [Prefill] -----------------> [Ready] -------------------> [InFlight]
//                                                  ^  |                           |  |
//                                                  |  +- more rows on the trunk --+  |
//                                                  |        (several in flight)      |
//                                                  +-------- verdict ----------------+
//                                                  |
//                                                  +-- it ends the answer, or Stop --> [Over]
//
// [Over] keeps the committed slots for a next turn, until others need the pages.
//
// When the first segment is free it takes the rows on the trunk that were not sent yet, up to a
// limit; after a miss the root alone is what there is. `Turns` waits a little for the draft's
// answer first; a draft that stays silent is not waited for again until it speaks, one that is
// lost not until it has joined.
// Requests take turns. Pure apart from what it is told; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/decoding/slot_allocator.hpp"
#include "actors/request_state.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "ipc/messages.hpp"
#include "runtime/context.hpp"

namespace paceline {

enum class StartRule : std::uint8_t {
    AtOnce,  // with whatever the tree holds; for pipelines without a draft, or PEARL-like ones
    Turns,   // wait for the draft's answer to the new root, but not longer than proposal_wait
};

struct DispatchOptions {
    StartRule start = StartRule::Turns;
    Micros proposal_wait{2000};
    std::uint32_t rows_max = kGammaMax + 1;     // of a verify wave, the root included
    std::uint32_t waves_in_flight_max = 1;      // verify waves of one request
    std::uint32_t prefill_rows = kWaveRowsMax;  // of a prefill wave
};

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const DispatchOptions& options);

struct DispatchFigures {
    std::uint64_t proposals_used = 0;      // for the root of the day
    std::uint64_t proposals_outdated = 0;  // for another root: ignored
    std::uint64_t turns_waited_out = 0;    // started without the draft's answer
};

class Dispatcher {
public:
    Dispatcher(DispatchOptions options, std::int32_t kv_slots);

    /// Errors: OutOfMemory when the cache cannot hold the request's context beside the others.
    /// With spec().reuse the slots of that many positions stay from the attempt before.
    Status begin(const std::shared_ptr<RequestState>& state, Micros now);
    /// Whether the slots of a request are still kept: those of requests that are over go, the
    /// oldest first, when others need their pages.
    [[nodiscard]] bool holds(RequestId request) const;

    /// Whether begin() of this request would find its pages, those of requests that are over
    /// included.
    [[nodiscard]] bool has_room(RequestId request, const Request& spec) const;
    /// Whether there is a draft to wait for. There is one at the start, unless `start` says that
    /// nobody is waited for.
    void draft_changed(bool present);

    /// Merges a proposal into the tree, if it continues the current root. One for a root that is
    /// still to come is kept: the draft may have heard the verdict first.
    void propose(const msg::Proposal& proposal, Micros now);
    /// A verdict was applied to the state: `step` is what it did.
    void follow(RequestId request, const TreeStep& step, Micros now);

    /// The next wave for the layers, its slots and names taken; nothing if there is none now.
    /// route.epoch, tensor and tensor_generation are the caller's to fill, and a prefill wave's
    /// rows are the caller's to add to the state.
    [[nodiscard]] std::optional<msg::Wave> next_wave(Micros now);
    /// When a wave will be due even if nothing else happens.
    [[nodiscard]] std::optional<Micros> due() const;

    [[nodiscard]] const DispatchFigures& figures() const { return figures_; }
    /// KV slots in use by a request; 0 if it is not here.
    [[nodiscard]] std::int32_t slots_in_use(RequestId request) const;
    [[nodiscard]] std::int32_t free_pages() const { return pages_.free_pages(); }

private:
    struct Lane {
        std::shared_ptr<RequestState> state;
        RequestSlots slots;
        std::uint32_t next_wave = 0;
        std::deque<std::vector<NodeId>> in_flight;  // the nodes of verify waves without verdict
        bool answered = false;                      // the draft has spoken about this root
        std::uint32_t silent = 0;                   // turns in a row that were waited out
        Micros wait_until{0};                       // for the draft's answer about this root
        std::optional<msg::Proposal> ahead = {};    // the newest for a root that is still to come
    };

    bool evict();
    void merge(Lane& lane, const msg::Proposal& proposal, Micros now);
    [[nodiscard]] std::optional<msg::Wave> wave_for(Lane& lane, Micros now);
    [[nodiscard]] msg::Wave new_wave(Lane& lane, msg::WaveKind kind);
    [[nodiscard]] msg::Wave prefill_wave(Lane& lane, Micros now);
    [[nodiscard]] std::optional<msg::Wave> verify_wave(Lane& lane);
    [[nodiscard]] bool may_start(const Lane& lane, Micros now) const;
    [[nodiscard]] bool waits_for_draft(const Lane& lane) const;
    [[nodiscard]] std::vector<NodeId> unsent_trunk(const Lane& lane) const;

    DispatchOptions options_;
    KvPages pages_;
    std::map<RequestId, Lane> lanes_;
    RequestId last_served_;
    bool draft_present_ = true;
    DispatchFigures figures_;
};

}  // namespace paceline
