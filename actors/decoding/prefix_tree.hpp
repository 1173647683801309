// PrefixTree: full pages of the KV cache that several texts may share, by the tokens that they
// hold.
//
//     root of a salt -- [t0 .. t31] page 7 -- [t32 .. t63] page 2 -- ...
//                                          \- [t32'.. t63'] page 9
//
// A block is a page whose 32 slots hold the keys of 32 consecutive tokens, each at its home offset.
// It belongs to the path of all tokens before it, compared token by token, and to one salt: texts
// with different salts never share. The states of a block:
//
//     [of a request] -- insert() --> [held, n holders] <-- hold() / release() --> [unheld]
//                                           | clear()                  evict(), clear() |
//                                           v                                           v
//                                    [held, not found any more] -- release() --> page free again
//
// When segments have lost the keys of a block, it says which (lose()), until a request has computed
// it again there (complete()): its page is still good at the others.
// An unheld block stays until its page is needed: the one without children that was unheld longest
// goes first. Who holds a block holds all blocks above it.
// Owns the pages of its blocks, which it gives back to the KvPages that it borrows. release() and
// evict() allocate nothing: they run in destructors.
// Pure and bounded by the pages; not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/decoding/kv_pages.hpp"
#include "actors/decoding/lost_keys.hpp"
#include "ipc/base/ids.hpp"
#include "model/kv_layout.hpp"

namespace paceline {

/// A block of the tree; 0 is none.
using PrefixBlock = std::uint64_t;
using BlockTokens = std::span<const TokenId, kKvPageSlots>;

class PrefixTree {
public:
    explicit PrefixTree(KvPages& pages) : pages_{pages} {}
    PrefixTree(const PrefixTree&) = delete;
    PrefixTree& operator=(const PrefixTree&) = delete;

    /// The parent of a salt's first blocks; 0 if there are none.
    [[nodiscard]] PrefixBlock find_root(const std::string& salt) const;
    /// The same, which is there from now on until its last block goes.
    [[nodiscard]] PrefixBlock make_root(const std::string& salt);
    /// 0 if there is none.
    [[nodiscard]] PrefixBlock child(PrefixBlock parent, BlockTokens tokens) const;
    /// Blocks that hold the first tokens of `text`, of which no segment has lost keys. None need be
    /// held.
    [[nodiscard]] std::size_t blocks_of(const std::string& salt,
                                        std::span<const TokenId> text) const;
    /// The most tokens that a block below `parent` has in common with `tokens` at its beginning.
    [[nodiscard]] std::size_t common_with_child(PrefixBlock parent,
                                                std::span<const TokenId> tokens) const;
    [[nodiscard]] std::int32_t page(PrefixBlock block) const { return nodes_.at(block).page; }

    void hold(PrefixBlock block);
    void release(PrefixBlock block);
    /// A new block, held by its inserter, whose page it was. Preconditions: no such child yet;
    /// `parent` is a root or held.
    PrefixBlock insert(PrefixBlock parent, BlockTokens tokens, std::int32_t page);

    /// Segments have lost the keys of all blocks.
    void lose(const LostKeys& lost);
    /// The segments that lack keys of the block.
    [[nodiscard]] const LostKeys& lost(PrefixBlock block) const { return nodes_.at(block).lost; }
    /// All segments have its keys.
    void complete(PrefixBlock block) { nodes_.at(block).lost = {}; }

    /// Frees the page of one unheld block. False: there is none.
    bool evict();
    /// No block is found any more: a stage has lost the keys. Held ones are freed when released.
    void clear();

    /// How often clear() or lose() was called: with rows that were computed before, no block may be
    /// inserted or completed.
    [[nodiscard]] std::uint64_t losses() const { return losses_; }
    /// Pages that evict() could free.
    [[nodiscard]] std::int32_t unheld() const { return unheld_; }
    [[nodiscard]] std::size_t blocks() const { return nodes_.size() - roots_.size(); }

private:
    struct Key {
        PrefixBlock parent = 0;
        std::array<TokenId, kKvPageSlots> tokens{};
        friend bool operator==(const Key&, const Key&) = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const;
    };
    struct Node {
        Key key = {};
        std::int32_t page = -1;  // -1: a root
        int holders = 0;
        std::vector<PrefixBlock> children = {};
        bool found = true;  // false: cleared
        LostKeys lost = {};
        bool leaf = false;  // unheld, without children: in the list of those, by age
        PrefixBlock older = 0;
        PrefixBlock newer = 0;
    };
    [[nodiscard]] static Key key_of(PrefixBlock parent, BlockTokens tokens);
    void make_leaf(PrefixBlock block);
    void unmake_leaf(PrefixBlock block);
    void unlink(PrefixBlock block);

    KvPages& pages_;
    std::map<PrefixBlock, Node> nodes_;
    std::unordered_map<Key, PrefixBlock, KeyHash> index_;
    std::map<std::string, PrefixBlock> roots_;
    PrefixBlock oldest_leaf_ = 0;
    PrefixBlock newest_leaf_ = 0;
    std::int32_t unheld_ = 0;
    PrefixBlock newest_ = 0;
    std::uint64_t losses_ = 0;
};

}  // namespace paceline
