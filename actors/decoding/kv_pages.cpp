#include "actors/decoding/kv_pages.hpp"

#include <fmt/core.h>

#include "ipc/base/check.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

KvPages::KvPages(std::int32_t kv_slots) : count_{kv_slots / kKvPageSlots} {
    PACE_CHECK(kv_slots >= 0, "a cache of fewer than no slots");
    taken_.assign(static_cast<std::size_t>(count_), false);
    free_.reserve(static_cast<std::size_t>(count_));
    for (std::int32_t page = count_; page-- > 0;) free_.push_back(page);  // page 0 goes first
}

Status KvPages::reserve(std::int32_t pages) {
    if (pages > free_pages() - reserved_) {
        return Error{Errc::OutOfMemory,
                     fmt::format("the request needs {} pages of {} KV slots, but only {} of {} are "
                                 "free; use a smaller context",
                                 pages, kKvPageSlots, free_pages() - reserved_, count_)};
    }
    reserved_ += pages;
    return {};
}

void KvPages::unreserve(std::int32_t pages) {
    PACE_CHECK(pages >= 0 && pages <= reserved_, "more pages unreserved than were reserved");
    reserved_ -= pages;
    ++releases_;
}

std::int32_t KvPages::take_reserved() {
    PACE_CHECK(reserved_ > 0 && !free_.empty(), "a page taken that was not reserved");
    --reserved_;
    const std::int32_t page = free_.back();
    free_.pop_back();
    taken_[static_cast<std::size_t>(page)] = true;
    return page;
}

std::int32_t KvPages::take() {
    if (free_pages() <= reserved_) return kNoPage;
    ++reserved_;
    return take_reserved();
}

void KvPages::give(std::int32_t page) {
    PACE_CHECK(page >= 0 && page < count_ && taken_[static_cast<std::size_t>(page)],
               "a page given back that was not taken");
    taken_[static_cast<std::size_t>(page)] = false;
    free_.push_back(page);
    ++releases_;
}

}  // namespace paceline
