#include "actors/decoding/slot_allocator.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

constexpr KvSlot kGone = -1;  // of a shared page that is given up

}  // namespace

Result<RequestSlots> RequestSlots::make(KvPages& pages, Position positions) {
    PACE_CHECK(positions >= 0, "slots for fewer than no positions");
    if (const Status reserved = pages.reserve(pages_for(positions)); !reserved) {
        return reserved.error();
    }
    return RequestSlots{pages, positions, true};
}

RequestSlots RequestSlots::on_demand(KvPages& pages,
                                     Position positions,
                                     PrefixTree* tree,
                                     std::string salt) {
    PACE_CHECK(positions >= 0, "slots for fewer than no positions");
    RequestSlots slots{pages, positions, false};
    slots.tree_ = tree;
    slots.losses_ = tree == nullptr ? 0 : tree->losses();
    slots.salt_ = std::move(salt);
    return slots;
}

RequestSlots::RequestSlots(KvPages& pages, Position positions, bool reserved)
    : pages_{&pages},
      positions_{positions},
      reserved_{reserved},
      block_pages_(static_cast<std::size_t>(pages_for(positions)), kNoPage),
      used_offsets_(static_cast<std::size_t>(pages.count()), 0) {
    committed_.reserve(static_cast<std::size_t>(positions));
}

RequestSlots::RequestSlots(RequestSlots&& other) noexcept
    : pages_{std::exchange(other.pages_, nullptr)},
      positions_{other.positions_},
      reserved_{other.reserved_},
      tree_{other.tree_},
      losses_{other.losses_},
      salt_{std::move(other.salt_)},
      shared_{std::move(other.shared_)},
      prefix_broken_{other.prefix_broken_},
      blocks_end_{other.blocks_end_},
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
    reserved_ = other.reserved_;
    tree_ = other.tree_;
    losses_ = other.losses_;
    salt_ = std::move(other.salt_);
    shared_ = std::move(other.shared_);
    prefix_broken_ = other.prefix_broken_;
    blocks_end_ = other.blocks_end_;
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
    for (std::size_t block = 0; block < block_pages_.size(); ++block) {
        if (block_pages_[block] == kNoPage) {
            ++unused;
        } else if (block >= shared_.size()) {
            pages_->give(block_pages_[block]);
        }
    }
    release_shared();
    if (reserved_) pages_->unreserve(unused);
    for (const std::int32_t page : spare_pages_) pages_->give(page);
    pages_ = nullptr;
}

std::int32_t RequestSlots::pages_held() const {
    const auto blocks = reserved_
                            ? static_cast<std::ptrdiff_t>(block_pages_.size())
                            : std::count_if(block_pages_.begin(), block_pages_.end(),
                                            [](std::int32_t page) { return page != kNoPage; });
    return static_cast<std::int32_t>(blocks + std::ssize(spare_pages_));
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

Result<KvSlot> RequestSlots::allocate(Position position, SlotRule rule) {
    if (position < 0 || position >= positions_) {
        return Error{Errc::BadArgument,
                     fmt::format("position {} is outside of the request's context of {}", position,
                                 positions_)};
    }
    const auto block = static_cast<std::size_t>(position / kKvPageSlots);
    if (block_pages_[block] == kNoPage) take_block(block, rule);
    const KvSlot home = home_of(position);
    if (home < 0 || uses(home)) return allocate_spare(rule);
    occupy(home);
    return home;
}

/// Cached blocks that no text holds go first.
std::int32_t RequestSlots::take_page(const SlotRule& rule) {
    while (tree_ != nullptr && pages_->unreserved_pages() <= rule.pages_left && tree_->evict()) {
    }
    return pages_->unreserved_pages() > rule.pages_left ? pages_->take() : kNoPage;
}

void RequestSlots::take_block(std::size_t block, const SlotRule& rule) {
    const std::int32_t page = reserved_ ? pages_->take_reserved() : take_page(rule);
    block_pages_[block] = page;
    if (page == kNoPage) return;
    blocks_end_ = std::max(blocks_end_, block + 1);
    // Positions that were committed to spares while the block had no page.
    const std::size_t begin = block * kKvPageSlots;
    for (std::size_t position = begin; position < committed_.size(); ++position)
        spares_.push_back(page * kKvPageSlots + static_cast<KvSlot>(position - begin));
}

/// Whether the next token of the text would still find a slot.
bool RequestSlots::may_take_last_spare(const SlotRule& rule) const {
    if (!rule.leaves_one_slot || committed_.size() >= static_cast<std::size_t>(positions_))
        return true;
    const KvSlot home = home_of(static_cast<Position>(committed_.size()));
    return home >= 0;
}

Result<KvSlot> RequestSlots::allocate_spare(const SlotRule& rule) {
    if (spares_.empty()) {
        const std::int32_t page = take_page(rule);
        if (page == kNoPage) {
            return Error{Errc::OutOfMemory, "no KV slot is left for a row of the request"};
        }
        spare_pages_.push_back(page);
        for (std::int32_t offset = kKvPageSlots; offset-- > 0;) {
            spares_.push_back(page * kKvPageSlots + offset);
        }
    }
    if (spares_.size() == 1 && !may_take_last_spare(rule))
        return Error{Errc::OutOfMemory, "the last KV slot is left to the request's next token"};
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
    PACE_CHECK(length >= 0 && static_cast<std::size_t>(length) <= committed_.size() &&
                   static_cast<std::size_t>(length) >= shared_.size() * kKvPageSlots,
               "a cut after the end of the committed prefix, or inside of what is shared");
    const std::vector<KvSlot> gone(committed_.begin() + length, committed_.end());
    committed_.resize(static_cast<std::size_t>(length));
    for (std::size_t i = 0; i < gone.size(); ++i) {
        if (gone[i] != kGone) free(length + static_cast<Position>(i), gone[i]);
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

// ---- Shared prefixes

bool RequestSlots::all_at_home(std::size_t block) const {
    const KvSlot first = block_pages_[block] * kKvPageSlots;
    for (std::int32_t i = 0; i < kKvPageSlots; ++i) {
        const std::size_t position = block * kKvPageSlots + static_cast<std::size_t>(i);
        if (committed_[position] != first + i) return false;
    }
    return true;
}

/// From the end, so that a block becomes a leaf before those above it.
void RequestSlots::release_shared() {
    while (!shared_.empty()) {
        tree_->release(shared_.back());
        shared_.pop_back();
    }
}

void RequestSlots::unshare() {
    prefix_broken_ = true;
    for (std::size_t block = 0; block < shared_.size(); ++block) {
        const std::int32_t page = std::exchange(block_pages_[block], kNoPage);
        used_offsets_[static_cast<std::size_t>(page)] = 0;
        in_use_ -= kKvPageSlots;
        const auto at = committed_.begin() + static_cast<std::ptrdiff_t>(block * kKvPageSlots);
        std::fill_n(at, kKvPageSlots, kGone);
    }
    release_shared();
    cut(0);
}

RequestSlots::Shared RequestSlots::share(std::span<const TokenId> text) {
    PACE_CHECK(committed_.empty(), "a prefix shared behind other rows");
    PrefixBlock above = tree_ == nullptr || prefix_broken_ ? 0 : tree_->find_root(salt_);
    if (above == 0) return {};
    const std::size_t blocks = std::min(text.size() / kKvPageSlots, block_pages_.size());
    Shared result;
    while (shared_.size() < blocks) {
        const std::size_t block = shared_.size();
        const PrefixBlock found =
            tree_->child(above, text.subspan(block * kKvPageSlots).first<kKvPageSlots>());
        if (found == 0) break;
        if (!planted(PlantedBug::PrefixCountForgotten)) tree_->hold(found);
        shared_.push_back(found);
        above = found;
        result.lost.add(tree_->lost(found));
        if (!result.lost.any()) result.complete += kKvPageSlots;
        block_pages_[block] = tree_->page(found);
        for (std::int32_t i = 0; i < kKvPageSlots; ++i) {
            committed_.push_back(block_pages_[block] * kKvPageSlots + i);
            occupy(committed_.back());
        }
    }
    blocks_end_ = std::max(blocks_end_, shared_.size());
    const std::size_t cached = committed_.size();
    result.cached = static_cast<Position>(cached);
    result.matched =
        static_cast<Position>(cached + tree_->common_with_child(above, text.subspan(cached)));
    return result;
}

void RequestSlots::publish(std::span<const TokenId> text) {
    if (tree_ == nullptr) return;
    if (tree_->losses() != losses_) {
        prefix_broken_ = true;
        return;
    }
    for (const PrefixBlock block : shared_) tree_->complete(block);
    const std::size_t known = std::min(committed_.size(), text.size());
    while (!prefix_broken_ && (shared_.size() + 1) * kKvPageSlots <= known) {
        const std::size_t block = shared_.size();
        prefix_broken_ = !all_at_home(block);
        if (prefix_broken_) break;
        const PrefixBlock above = block == 0 ? tree_->make_root(salt_) : shared_.back();
        const BlockTokens tokens = text.subspan(block * kKvPageSlots).first<kKvPageSlots>();
        prefix_broken_ = tree_->child(above, tokens) != 0;
        if (!prefix_broken_) shared_.push_back(tree_->insert(above, tokens, block_pages_[block]));
    }
}

void RequestSlots::trim() {
    if (reserved_) return;
    const auto is_unused = [this](std::int32_t page) {
        return used_offsets_[static_cast<std::size_t>(page)] == 0;
    };
    const std::size_t root_block = committed_.size() / kKvPageSlots;
    while (blocks_end_ > root_block + 1) {
        std::int32_t& page = block_pages_[blocks_end_ - 1];
        if (page != kNoPage) {
            if (!is_unused(page)) break;
            pages_->give(std::exchange(page, kNoPage));
        }
        --blocks_end_;
    }
    for (std::size_t i = spare_pages_.size(); i-- > 0;) {
        const std::int32_t page = spare_pages_[i];
        if (!is_unused(page)) continue;
        std::erase_if(spares_, [&](KvSlot slot) { return page_of(slot) == page; });
        spare_pages_.erase(spare_pages_.begin() + static_cast<std::ptrdiff_t>(i));
        pages_->give(page);
    }
}

}  // namespace paceline
