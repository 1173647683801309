#include "actors/decoding/slot_allocator.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

constexpr std::int32_t kNoPage = -1;

}  // namespace

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
}

std::int32_t KvPages::take_reserved() {
    PACE_CHECK(reserved_ > 0 && !free_.empty(), "a page taken that was not reserved");
    --reserved_;
    const std::int32_t page = free_.back();
    free_.pop_back();
    taken_[static_cast<std::size_t>(page)] = true;
    return page;
}

std::int32_t KvPages::take_spare() {
    if (free_pages() <= reserved_) return kNoPage;
    ++reserved_;
    return take_reserved();
}

void KvPages::give(std::int32_t page, Again again) {
    PACE_CHECK(page >= 0 && page < count_ && taken_[static_cast<std::size_t>(page)],
               "a page given back that was not taken");
    taken_[static_cast<std::size_t>(page)] = false;
    free_.push_back(page);
    if (again == Again::Reserved) ++reserved_;
}

Result<RequestSlots> RequestSlots::make(KvPages& pages, Position positions) {
    PACE_CHECK(positions >= 0, "slots for fewer than no positions");
    if (const Status reserved = pages.reserve(pages_for(positions)); !reserved) {
        return reserved.error();
    }
    return RequestSlots{pages, positions};
}

RequestSlots::RequestSlots(KvPages& pages, Position positions)
    : pages_{&pages},
      positions_{positions},
      block_pages_(static_cast<std::size_t>(pages_for(positions)), kNoPage),
      used_offsets_(static_cast<std::size_t>(pages.count()), 0) {
    committed_.reserve(static_cast<std::size_t>(positions));
}

RequestSlots::RequestSlots(RequestSlots&& other) noexcept
    : pages_{std::exchange(other.pages_, nullptr)},
      positions_{other.positions_},
      in_use_{std::exchange(other.in_use_, 0)},
      block_pages_{std::move(other.block_pages_)},
      spare_pages_{std::move(other.spare_pages_)},
      spares_{std::move(other.spares_)},
      committed_{std::move(other.committed_)},
      used_offsets_{std::move(other.used_offsets_)} {}

RequestSlots& RequestSlots::operator=(RequestSlots&& other) noexcept {
    if (this == &other) return *this;
    release_all();
    pages_ = std::exchange(other.pages_, nullptr);
    positions_ = other.positions_;
    in_use_ = std::exchange(other.in_use_, 0);
    block_pages_ = std::move(other.block_pages_);
    spare_pages_ = std::move(other.spare_pages_);
    spares_ = std::move(other.spares_);
    committed_ = std::move(other.committed_);
    used_offsets_ = std::move(other.used_offsets_);
    return *this;
}

RequestSlots::~RequestSlots() {
    release_all();
}

void RequestSlots::release_all() {
    if (pages_ == nullptr) return;
    std::int32_t unused = 0;
    for (const std::int32_t page : block_pages_) {
        if (page == kNoPage) {
            ++unused;
        } else {
            pages_->give(page, KvPages::Again::Spare);
        }
    }
    pages_->unreserve(unused);
    for (const std::int32_t page : spare_pages_) pages_->give(page, KvPages::Again::Spare);
    pages_ = nullptr;
}

bool RequestSlots::uses(KvSlot slot) const {
    const auto page = static_cast<std::size_t>(page_of(slot));
    return slot >= 0 && page < used_offsets_.size() &&
           ((used_offsets_[page] >> static_cast<unsigned>(offset_of(slot))) & 1U) != 0;
}

void RequestSlots::occupy(KvSlot slot) {
    PACE_CHECK(!uses(slot), "a KV slot handed out while it is in use");
    used_offsets_[static_cast<std::size_t>(page_of(slot))] |=
        1U << static_cast<unsigned>(offset_of(slot));
    ++in_use_;
}

KvSlot RequestSlots::home_of(Position position) const {
    const std::int32_t page = block_pages_[static_cast<std::size_t>(position / kKvPageSlots)];
    return page == kNoPage ? -1 : page * kKvPageSlots + position % kKvPageSlots;
}

Result<KvSlot> RequestSlots::allocate(Position position) {
    if (position < 0 || position >= positions_) {
        return Error{Errc::BadArgument,
                     fmt::format("position {} is outside of the request's context of {}", position,
                                 positions_)};
    }
    std::int32_t& page = block_pages_[static_cast<std::size_t>(position / kKvPageSlots)];
    if (page == kNoPage) page = pages_->take_reserved();
    const KvSlot home = home_of(position);
    if (uses(home)) return allocate_spare();
    occupy(home);
    return home;
}

Result<KvSlot> RequestSlots::allocate_spare() {
    if (spares_.empty()) {
        const std::int32_t page = pages_->take_spare();
        if (page == kNoPage) {
            return Error{Errc::OutOfMemory, "no KV slot is left for a second row of one position"};
        }
        spare_pages_.push_back(page);
        for (std::int32_t offset = kKvPageSlots; offset-- > 0;) {
            spares_.push_back(page * kKvPageSlots + offset);
        }
    }
    const KvSlot slot = spares_.back();
    spares_.pop_back();
    occupy(slot);
    return slot;
}

void RequestSlots::commit(KvSlot slot) {
    PACE_CHECK(uses(slot), "a KV slot committed that is not in use");
    const auto position = static_cast<Position>(committed_.size());
    PACE_CHECK(position < positions_, "more slots committed than the context has positions");
    committed_.push_back(slot);
    // A sibling stands for this position: the home offset is not requested again, unless its
    // other row is still to be freed, which then makes it a spare.
    const KvSlot home = home_of(position);
    if (home >= 0 && home != slot && !uses(home)) spares_.push_back(home);
}

void RequestSlots::free(Position position, KvSlot slot) {
    PACE_CHECK(uses(slot), "a KV slot freed that is not in use");
    PACE_CHECK(position >= 0 && position < positions_, "a KV slot freed at no position");
    used_offsets_[static_cast<std::size_t>(page_of(slot))] &=
        ~(1U << static_cast<unsigned>(offset_of(slot)));
    --in_use_;
    const bool is_home = slot == home_of(position);
    const bool claimable = is_home && static_cast<std::size_t>(position) >= committed_.size();
    if (!claimable) spares_.push_back(slot);
}

void RequestSlots::cut(Position length) {
    PACE_CHECK(length >= 0 && static_cast<std::size_t>(length) <= committed_.size(),
               "a cut after the end of the committed prefix");
    const std::vector<KvSlot> gone(committed_.begin() + length, committed_.end());
    committed_.resize(static_cast<std::size_t>(length));
    for (std::size_t i = 0; i < gone.size(); ++i) {
        free(length + static_cast<Position>(i), gone[i]);
    }
    // The home offsets of the positions that are open again stop being spares.
    const auto first_block = static_cast<std::size_t>(length / kKvPageSlots);
    std::erase_if(spares_, [&](KvSlot slot) {
        for (std::size_t block = first_block; block < block_pages_.size(); ++block) {
            if (block_pages_[block] != page_of(slot)) continue;
            return static_cast<Position>(block) * kKvPageSlots + offset_of(slot) >= length;
        }
        return false;
    });
}

}  // namespace paceline
