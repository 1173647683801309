#include "actors/segment/scheduling/request_pages.hpp"

#include <algorithm>
#include <span>

#include "ipc/base/check.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

void RequestPages::follow_losses(std::uint32_t generation, const LostKeys& lost) {
    if (generation != generation_) {
        const bool next = generation == generation_ + 1;
        if (next && !lost.is_all()) {
            prefixes_.lose(lost);
        } else {
            prefixes_.clear();
        }
    }
    generation_ = generation;
}

std::int32_t RequestPages::in_use() const {
    return pages_.count() - pages_.unreserved_pages() - prefixes_.unheld();
}

bool RequestPages::is_blocked(const SchedulerEntry& entry) const {
    return entry.page_use.blocked_at == pages_.releases();
}

/// Nothing of its own that could free a slot is on its way: it waits for the pages of others.
void RequestPages::block(SchedulerEntry& entry, std::uint32_t running) {
    entry.page_use.blocked_at = pages_.releases();
    if (!entry.in_flight.empty() || shortage_at_ == entry.page_use.blocked_at) return;
    shortage_at_ = entry.page_use.blocked_at;
    shortage_ = PageShortage{
        .request = entry.state->request(), .attempt = entry.state->attempt(), .running = running};
}

void RequestPages::publish(SchedulerEntry& entry) {
    const bool before = entry.slots.prefix_broken();
    entry.slots.publish(entry.state->text());
    if (!before && entry.slots.prefix_broken()) ++broken_;
}

/// A running request that is computing most of what this one needs, and has been for longer.
std::optional<RequestId> RequestPages::leader_of(const SchedulerEntry& entry,
                                                 const SchedulerEntries& all) const {
    const RequestState& own = *entry.state;
    const std::span<const TokenId> text{own.text()};
    const std::size_t cached = prefixes_.blocks_of(own.spec().cache_salt, text);
    for (const auto& [request, other] : all) {
        if (&other == &entry || other.page_use.proven || other.state->slots().empty()) continue;
        if (other.state->spec().cache_salt != own.spec().cache_salt) continue;
        const std::span<const TokenId> theirs{other.state->text()};
        const auto end = std::mismatch(text.begin(), text.end() - 1, theirs.begin(), theirs.end());
        const std::size_t blocks =
            static_cast<std::size_t>(end.first - text.begin()) / kKvPageSlots;
        if (blocks > cached && blocks * kKvPageSlots * 2 >= text.size()) return request;
    }
    return std::nullopt;
}

bool RequestPages::waits_for_prefix(SchedulerEntry& entry, const SchedulerEntries& all) const {
    if (entry.page_use.looked_up || entry.state->spec().scores.prompt) return false;
    if (entry.page_use.leader) {
        const auto leader = all.find(*entry.page_use.leader);
        if (leader != all.end() && !leader->second.page_use.proven) return true;
    }
    entry.page_use.leader = leader_of(entry, all);
    return entry.page_use.leader.has_value();
}

/// The last of the segments before the lost ones that retains states: those behind it run again.
std::optional<RetainedBy> RequestPages::supplier_of(const LostKeys& lost) const {
    std::optional<RetainedBy> last;
    for (const RetainedBy& each : retained_) {
        if (each.stage.value < lost.from && (!last || last->stage < each.stage)) last = each;
    }
    return last;
}

void RequestPages::look_up(SchedulerEntry& entry) {
    entry.page_use.looked_up = true;
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
        found_.push_back(found);
        found_.back().pages.assign(pages.begin(), complete);
        const Status taken = state.take_prefix(0, found_.back().pages, shared.matched);
        PACE_CHECK(taken.ok(), "a cached prefix that its own request does not take");
    }
    if (complete == pages.end()) return;
    entry.page_use.lost_to = shared.lost.to;
    entry.page_use.supplier = supplier_of(shared.lost);
    found_.push_back(found);
    CachedPrefix& kept = found_.back();
    kept.first_block = static_cast<std::size_t>(complete - pages.begin());
    kept.pages.assign(complete, pages.end());
    kept.behind = shared.lost.to;
}

}  // namespace paceline
