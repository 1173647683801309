// SlotAllocator: assigns KV slots. Only the dispatcher allocates.
//
//     KvPages        the pages of the cache, shared by all requests
//     RequestSlots   the slots of one request, in pages it took
//
// The row of position p gets its home slot, offset p % 32 of the page of block p / 32, when that
// is free (where the attention kernels are fastest), else a spare one (a sibling in a tree).
// Entries are never moved: a commit keeps the slot, a rollback frees it.
// A request reserves the pages of its whole context when it starts, so a committed token always
// finds a slot; spares come from its own unused offsets first, then from unreserved pages.
// Pure and bounded; not thread-safe.
// Invariants: a slot is in use by at most one row; RequestSlots gives all pages back at its end.
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

class KvPages {
public:
    /// `kv_slots` of the cache; an incomplete last page is not used.
    explicit KvPages(std::int32_t kv_slots);

    /// Sets `pages` aside. Errors: OutOfMemory with both numbers.
    Status reserve(std::int32_t pages);
    void unreserve(std::int32_t pages);

    /// A page out of what was reserved before.
    [[nodiscard]] std::int32_t take_reserved();
    /// An unreserved page, or -1.
    [[nodiscard]] std::int32_t take_spare();
    /// `again`: the page goes back to what its giver had reserved.
    enum class Again : std::uint8_t { Reserved, Spare };
    void give(std::int32_t page, Again again);

    [[nodiscard]] std::int32_t count() const { return count_; }
    [[nodiscard]] std::int32_t free_pages() const {
        return static_cast<std::int32_t>(free_.size());
    }
    /// Free and not reserved.
    [[nodiscard]] std::int32_t unreserved_pages() const { return free_pages() - reserved_; }

private:
    std::int32_t count_;
    std::int32_t reserved_ = 0;       // of the free pages, reserved
    std::vector<std::int32_t> free_;  // a stack
    std::vector<bool> taken_;         // by page: guards against giving one back twice
};

class RequestSlots {
public:
    /// Slots for positions [0, positions). Errors: OutOfMemory when the pages are short.
    static Result<RequestSlots> make(KvPages& pages, Position positions);

    RequestSlots(RequestSlots&& other) noexcept;
    RequestSlots& operator=(RequestSlots&& other) noexcept;
    RequestSlots(const RequestSlots&) = delete;
    RequestSlots& operator=(const RequestSlots&) = delete;
    ~RequestSlots();

    /// A slot for a row at `position`, in use from now on. Errors: OutOfMemory when its home is
    /// taken and no spare is left; BadArgument for a position outside the context.
    Result<KvSlot> allocate(Position position);
    /// The row at the next position, committed().size(), was accepted: its slot joins the prefix.
    void commit(KvSlot slot);
    /// A row at `position` was dropped.
    void free(Position position, KvSlot slot);
    /// Frees the committed slots at `length` and above (the next turn shares only the tokens
    /// before).
    void cut(Position length);

    /// position -> slot of the committed prefix.
    [[nodiscard]] const std::vector<KvSlot>& committed() const { return committed_; }
    [[nodiscard]] std::int32_t in_use() const { return in_use_; }
    /// Pages that are not free because of this request: reserved, taken, spare ones.
    [[nodiscard]] std::int32_t pages_held() const {
        return static_cast<std::int32_t>(block_pages_.size() + spare_pages_.size());
    }
    [[nodiscard]] bool uses(KvSlot slot) const;

private:
    RequestSlots(KvPages& pages, Position positions);
    void release_all();
    [[nodiscard]] KvSlot home_of(Position position) const;  // kNoPage: its block has no page yet
    Result<KvSlot> allocate_spare();
    void occupy(KvSlot slot);

    KvPages* pages_;
    Position positions_;
    std::int32_t in_use_ = 0;
    std::vector<std::int32_t> block_pages_;  // block -> page, -1: none yet
    std::vector<std::int32_t> spare_pages_;  // pages taken for spares
    std::vector<KvSlot> spares_;             // free offsets that no position can claim as home
    std::vector<KvSlot> committed_;
    std::vector<std::uint32_t> used_offsets_;  // by page of the whole cache: a bit per offset
};

}  // namespace paceline
