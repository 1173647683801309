// RequestSlots: the KV slots of one request, in pages that it took, behind blocks of a prefix that
// it shares with other requests (prefix_tree.hpp). Slots of the target's cache are allocated by the
// dispatcher alone.
//
// The row of position p gets its home slot, offset p % 32 of the page of block p / 32, when that
// is free (where the attention kernels are fastest), else a spare one (a sibling in a tree).
// Entries are never moved: a commit keeps the slot, a rollback frees it. Spares come from offsets
// of its own pages that no position can claim, then from free pages.
//     make()        reserves the pages of all positions: each of them finds a slot
//     on_demand()   takes pages as the text grows and gives unused ones back (trim()); when none is
//                   free, nor a cached block that no text holds, a row of the text takes any spare
//                   slot, and fails only without one
// A request alone in the cache always finds a slot for its next token: every slot of its pages that
// no row uses is either a spare or the home of a position to come, and candidates leave one
// (SlotRule).
// share() begins a text with the blocks of the tree that hold its first tokens; publish() adds a
// block of its own to the tree when all its 32 rows are committed at their homes. A block with a
// row in a spare slot ends what can be shared of the text, and so does one that the tree has
// already: blocks below that one would keep its page from being freed, beside this text's own.
// Pure and bounded; not thread-safe.
// Invariants: a slot is in use by at most one row; RequestSlots gives all pages back at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/decoding/kv_pages.hpp"
#include "actors/decoding/prefix_tree.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

/// What a row leaves to others: nothing for a row of the text.
struct SlotRule {
    std::int32_t pages_left = 0;   // free pages that remain after it took one
    bool leaves_one_slot = false;  // for the next token of its own text
};

class RequestSlots {
public:
    /// Slots for positions [0, positions), reserved. Errors: OutOfMemory when the pages are short.
    static Result<RequestSlots> make(KvPages& pages, Position positions);
    /// `tree`: of the same pages; nullptr: nothing is shared.
    static RequestSlots on_demand(KvPages& pages,
                                  Position positions,
                                  PrefixTree* tree = nullptr,
                                  std::string salt = {});

    RequestSlots(RequestSlots&& other) noexcept;
    RequestSlots& operator=(RequestSlots&& other) noexcept;
    RequestSlots(const RequestSlots&) = delete;
    RequestSlots& operator=(const RequestSlots&) = delete;
    ~RequestSlots();

    /// A slot for a row at `position`, in use from now on. Errors: OutOfMemory when its home is
    /// taken (on demand: or has no page) and no spare is left; BadArgument for a position outside
    /// the context.
    Result<KvSlot> allocate(Position position, SlotRule rule = {});
    /// The row at the next position, committed().size(), was accepted: its slot joins the prefix.
    void commit(KvSlot slot);
    /// A row at `position` was dropped.
    void free(Position position, KvSlot slot);
    /// Frees the committed slots at `length` and above, which are not shared.
    void cut(Position length);
    /// Frees all committed slots; from now on nothing of this text is shared.
    void unshare();

    struct Shared {
        Position cached = 0;    // positions that are committed now
        Position matched = 0;   // tokens that the text has in common with what is cached
        Position complete = 0;  // of the cached ones, those whose keys no segment has lost
        LostKeys lost = {};     // the segments that lack keys of the others
    };
    /// Commits the longest prefix of `text` that the tree has in whole blocks.
    /// Precondition: nothing is committed.
    Shared share(std::span<const TokenId> text);
    /// The tokens of the committed positions, all of which have their keys: whole blocks can be
    /// shared from now on. `text` may be longer. Not if segments have lost keys since these slots
    /// were made: a verdict of before the loss, which comes after it, says nothing of their keys.
    void publish(std::span<const TokenId> text);
    /// Blocks were not published: a row was in a spare slot, the tree had one, or keys were lost.
    [[nodiscard]] bool prefix_broken() const { return prefix_broken_; }
    /// On demand: gives pages back that no row uses and the next token does not need.
    void trim();

    /// position -> slot of the committed prefix.
    [[nodiscard]] const std::vector<KvSlot>& committed() const { return committed_; }
    [[nodiscard]] std::int32_t in_use() const { return in_use_; }
    /// Pages that are not free because of this request: reserved, taken, spare ones.
    [[nodiscard]] std::int32_t pages_held() const;
    [[nodiscard]] bool uses(KvSlot slot) const;

private:
    RequestSlots(KvPages& pages, Position positions, bool reserved);
    void release_all();
    [[nodiscard]] KvSlot home_of(Position position) const;  // kNoPage: its block has no page yet
    void take_block(std::size_t block, const SlotRule& rule);
    [[nodiscard]] std::int32_t take_page(const SlotRule& rule);
    Result<KvSlot> allocate_spare(const SlotRule& rule);
    [[nodiscard]] bool may_take_last_spare(const SlotRule& rule) const;
    [[nodiscard]] bool all_at_home(std::size_t block) const;
    void release_shared();
    void occupy(KvSlot slot);

    KvPages* pages_;
    Position positions_;
    bool reserved_;
    PrefixTree* tree_ = nullptr;
    std::uint64_t losses_ = 0;  // of the tree, when the first of its rows could be computed
    std::string salt_;
    std::vector<PrefixBlock> shared_;  // leading blocks, held in the tree
    bool prefix_broken_ = false;       // no further block can be shared
    std::size_t blocks_end_ = 0;       // no block from here on has a page
    std::int32_t in_use_ = 0;
    std::vector<std::int32_t> block_pages_;  // block -> page, -1: none yet
    std::vector<std::int32_t> spare_pages_;  // pages taken for spares
    std::vector<KvSlot> spares_;             // free offsets that no position can claim as home
    std::vector<KvSlot> committed_;
    std::vector<std::uint32_t> used_offsets_;  // by page of the whole cache: a bit per offset
};

}  // namespace paceline
