// RequestPages: the pages of the KV cache of a target's requests, and the prefixes that they share.
// Part of the BatchScheduler.
//
// Pages are taken as texts grow. When they run short, candidates find none first, so that each
// running request can still take one for its text; then cached blocks that no request holds go;
// then take_shortage() names a request that cannot continue, until the conductor has preempted
// another or it.
//
// Whole blocks of a text whose keys all segments have (a verdict says so) can be shared by texts
// that begin with the same tokens (prefix_tree.hpp): a request looks for its prefix when its first
// rows are due. If another one is computing the same prefix at that moment, it waits for it.
// After the loss of a segment the segments behind it keep their keys: cached blocks are then
// computed again, in the same slots, by the segments up to the lost one alone (BatchPart::last), or
// by the lost one alone where the segment before it has retained the states (retained_states.hpp).
//
// Outlives the slots that it makes. No I/O and no clock; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/decoding/retained_states.hpp"
#include "actors/decoding/slot_allocator.hpp"
#include "actors/segment/scheduling/scheduler_entry.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

/// A request whose text cannot grow because no page is free. Named once, and again when pages have
/// become free since and were not enough.
struct PageShortage {
    RequestId request;
    Attempt attempt;
    std::uint32_t running = 0;  // requests that have pages
};

/// What was found of a text in the cache. The other segments need it before its first batch.
struct CachedPrefix {
    RequestId request;
    Attempt attempt;
    std::size_t first_block = 0;
    std::vector<std::int32_t> pages;
    Position matched = 0;      // tokens that it has in common with what is cached
    std::uint32_t behind = 0;  // as in msg::Prefix
};

class RequestPages {
public:
    /// `retained`: the segments that keep what they pass on.
    RequestPages(std::int32_t kv_slots, std::vector<RetainedBy> retained)
        : retained_{std::move(retained)}, pages_{kv_slots} {}

    /// A Begin names the losses of segments so far: blocks cached before one are computed again, or
    /// forgotten.
    void follow_losses(std::uint32_t generation, const LostKeys& lost);
    /// Slots of a request, with a cache that requests of the same `salt` share.
    [[nodiscard]] RequestSlots slots(Position context, const std::string& salt) {
        return RequestSlots::on_demand(pages_, context, &prefixes_, salt);
    }
    /// What a candidate leaves to others: each of `running` requests may soon need a page for its
    /// text.
    [[nodiscard]] static SlotRule candidate_rule(std::size_t running) {
        return {.pages_left = static_cast<std::int32_t>(running), .leaves_one_slot = true};
    }
    /// `count` slots that belong to no text.
    [[nodiscard]] Result<RequestSlots> scratch(std::int32_t count) {
        return RequestSlots::make(pages_, count);
    }
    /// Pages that running requests and scratch slots hold. Those of cached blocks that no request
    /// holds are not counted: they are freed when room is needed.
    [[nodiscard]] std::int32_t in_use() const;
    /// A page may have become free: blocked requests try again.
    void note_reclaimable() { pages_.note_reclaimable(); }
    /// Of a planted bug: a page is lost.
    void leak() { (void)pages_.take(); }

    /// No page was free at its last try, and none became free since.
    [[nodiscard]] bool is_blocked(const SchedulerEntry& entry) const;
    /// It found no page, beside `running` requests that have some.
    void block(SchedulerEntry& entry, std::uint32_t running);
    [[nodiscard]] std::optional<PageShortage> take_shortage() {
        return std::exchange(shortage_, std::nullopt);
    }

    /// After a verdict: what is committed has gone through all segments.
    void publish(SchedulerEntry& entry);
    /// Before the first rows of `entry`, one of `all`: whether another one computes its prefix.
    [[nodiscard]] bool waits_for_prefix(SchedulerEntry& entry, const SchedulerEntries& all) const;
    /// Takes what the cache has of its text.
    void look_up(SchedulerEntry& entry);
    /// Of the texts that were looked up since the last call; none without pages.
    [[nodiscard]] std::vector<CachedPrefix> take_prefixes() { return std::exchange(found_, {}); }
    /// Texts of which a row in a spare slot, or a block that was cached already, ended what can be
    /// shared, since the last call.
    [[nodiscard]] std::uint64_t take_prefixes_broken() { return std::exchange(broken_, 0); }

private:
    [[nodiscard]] std::optional<RequestId> leader_of(const SchedulerEntry& entry,
                                                     const SchedulerEntries& all) const;
    [[nodiscard]] std::optional<RetainedBy> supplier_of(const LostKeys& lost) const;

    std::vector<RetainedBy> retained_;
    KvPages pages_;
    PrefixTree prefixes_{pages_};
    std::uint32_t generation_ = 0;  // of the cache: losses of segments
    std::vector<CachedPrefix> found_;
    std::uint64_t broken_ = 0;
    std::optional<PageShortage> shortage_;
    std::optional<std::uint64_t> shortage_at_;  // KvPages::releases() of the last one
};

}  // namespace paceline
