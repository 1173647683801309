// BatchScheduler: pages of the KV cache, what is done when none is free, and the prefixes that
// requests share. Its other parts are batch_scheduler.cpp and batch_forming.cpp.
#include <algorithm>
#include <span>
#include <utility>

#include "actors/segment/batch_scheduler.hpp"
#include "ipc/base/check.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

std::int32_t BatchScheduler::pages_in_use() const {
    return pages_.count() - pages_.unreserved_pages() - prefixes_.unheld();
}

// ---- Pages

std::uint32_t BatchScheduler::running() const {
    return static_cast<std::uint32_t>(entries_.size());
}

/// Each running request may soon need a page for its text.
SlotRule BatchScheduler::candidate_rule() const {
    return {.pages_left = static_cast<std::int32_t>(running()), .leaves_one_slot = true};
}

bool BatchScheduler::is_blocked(const Entry& entry) const {
    return entry.blocked_at == pages_.releases();
}

/// Nothing of its own that could free a slot is on its way: it waits for the pages of others.
void BatchScheduler::block(Entry& entry) {
    entry.blocked_at = pages_.releases();
    if (!entry.in_flight.empty() || shortage_at_ == entry.blocked_at) return;
    shortage_at_ = entry.blocked_at;
    shortage_ = Shortage{
        .request = entry.state->request(), .attempt = entry.state->attempt(), .running = running()};
}

std::optional<BatchScheduler::Shortage> BatchScheduler::take_shortage() {
    return std::exchange(shortage_, std::nullopt);
}

// ---- Shared prefixes

/// After a verdict: what is committed has gone through all segments.
void BatchScheduler::publish(Entry& entry) {
    const bool before = entry.slots.prefix_broken();
    entry.slots.publish(entry.state->text());
    if (!before && entry.slots.prefix_broken()) ++broken_;
}

/// A running request that is computing most of what this one needs, and has been for longer.
std::optional<RequestId> BatchScheduler::leader_of(const Entry& entry) const {
    const RequestState& own = *entry.state;
    const std::span<const TokenId> text{own.text()};
    const std::size_t cached = prefixes_.blocks_of(own.spec().cache_salt, text);
    for (const auto& [request, other] : entries_) {
        if (&other == &entry || other.proven || other.state->slots().empty()) continue;
        if (other.state->spec().cache_salt != own.spec().cache_salt) continue;
        const std::span<const TokenId> theirs{other.state->text()};
        const auto end = std::mismatch(text.begin(), text.end() - 1, theirs.begin(), theirs.end());
        const std::size_t blocks =
            static_cast<std::size_t>(end.first - text.begin()) / kKvPageSlots;
        if (blocks > cached && blocks * kKvPageSlots * 2 >= text.size()) return request;
    }
    return std::nullopt;
}

/// Before its first rows.
bool BatchScheduler::waits_for_prefix(Entry& entry) {
    if (entry.looked_up || entry.state->spec().scores.prompt) return false;
    if (entry.leader) {
        const auto leader = entries_.find(*entry.leader);
        if (leader != entries_.end() && !leader->second.proven) return true;
    }
    entry.leader = leader_of(entry);
    return entry.leader.has_value();
}

/// The last of the segments before the lost ones that retains states: those behind it run again.
std::optional<RetainedBy> BatchScheduler::supplier_of(const LostKeys& lost) const {
    std::optional<RetainedBy> last;
    for (const RetainedBy& each : retained_) {
        if (each.stage.value < lost.from && (!last || last->stage < each.stage)) last = each;
    }
    return last;
}

void BatchScheduler::look_up(Entry& entry) {
    entry.looked_up = true;
    RequestState& state = *entry.state;
    // Each row of the prompt is computed by all segments, and gives a log probability.
    if (state.spec().scores.prompt) return;
    // The root is fed with the first verify batch: it is never taken from the cache.
    const std::span<const TokenId> text{state.text()};
    const RequestSlots::Shared shared = entry.slots.share(text.first(text.size() - 1));
    if (shared.cached == 0) return;
    const CachedPrefix found{.request = state.request(),
                             .attempt = state.attempt(),
                             .pages = {},
                             .matched = shared.matched};
    std::vector<std::int32_t> pages;
    for (std::size_t i = 0; i < entry.slots.committed().size(); i += kKvPageSlots)
        pages.push_back(page_of(entry.slots.committed()[i]));
    const auto complete = pages.begin() + shared.complete / kKvPageSlots;
    if (complete != pages.begin()) {
        found_prefixes_.push_back(found);
        found_prefixes_.back().pages.assign(pages.begin(), complete);
        const Status taken = state.take_prefix(0, found_prefixes_.back().pages, shared.matched);
        PACE_CHECK(taken.ok(), "a cached prefix that its own request does not take");
    }
    if (complete == pages.end()) return;
    entry.lost_to = shared.lost.to;
    entry.supplier = supplier_of(shared.lost);
    found_prefixes_.push_back(found);
    CachedPrefix& kept = found_prefixes_.back();
    kept.first_block = static_cast<std::size_t>(complete - pages.begin());
    kept.pages.assign(complete, pages.end());
    kept.behind = shared.lost.to;
}

}  // namespace paceline
