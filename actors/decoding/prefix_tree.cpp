#include "actors/decoding/prefix_tree.hpp"

#include <algorithm>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

std::size_t PrefixTree::KeyHash::operator()(const Key& key) const {
    std::uint64_t hash = 0xcbf29ce484222325ULL ^ key.parent;  // FNV-1a, a word at a time
    for (const TokenId token : key.tokens) {
        hash ^= static_cast<std::uint32_t>(token);
        hash *= 0x100000001b3ULL;
        hash ^= hash >> 29U;
    }
    return hash;
}

PrefixTree::Key PrefixTree::key_of(PrefixBlock parent, BlockTokens tokens) {
    Key key{.parent = parent};
    std::copy(tokens.begin(), tokens.end(), key.tokens.begin());
    return key;
}

PrefixBlock PrefixTree::find_root(const std::string& salt) const {
    const auto found = roots_.find(salt);
    return found == roots_.end() ? 0 : found->second;
}

PrefixBlock PrefixTree::make_root(const std::string& salt) {
    if (const PrefixBlock root = find_root(salt); root != 0) return root;
    const PrefixBlock root = ++newest_;
    nodes_[root] = {};
    roots_[salt] = root;
    return root;
}

PrefixBlock PrefixTree::child(PrefixBlock parent, BlockTokens tokens) const {
    const auto found = index_.find(key_of(parent, tokens));
    return found == index_.end() ? 0 : found->second;
}

std::size_t PrefixTree::blocks_of(const std::string& salt, std::span<const TokenId> text) const {
    std::size_t blocks = 0;
    PrefixBlock at = find_root(salt);
    for (; at != 0 && text.size() >= kKvPageSlots; text = text.subspan(kKvPageSlots)) {
        at = child(at, text.first<kKvPageSlots>());
        if (at != 0 && lost(at).any()) at = 0;
        if (at != 0) ++blocks;
    }
    return blocks;
}

std::size_t PrefixTree::common_with_child(PrefixBlock parent,
                                          std::span<const TokenId> tokens) const {
    std::size_t most = 0;
    for (const PrefixBlock child : nodes_.at(parent).children) {
        const auto& own = nodes_.at(child).key.tokens;
        const auto end = std::mismatch(own.begin(), own.end(), tokens.begin(), tokens.end()).first;
        most = std::max(most, static_cast<std::size_t>(end - own.begin()));
    }
    return most;
}

// ---- Holders

/// An unheld block without children may be evicted: the list of leaves gets it as its newest.
void PrefixTree::make_leaf(PrefixBlock block) {
    Node& node = nodes_.at(block);
    if (node.page < 0 || node.holders > 0 || !node.children.empty()) return;
    node.leaf = true;
    node.older = newest_leaf_;
    node.newer = 0;
    (newest_leaf_ == 0 ? oldest_leaf_ : nodes_.at(newest_leaf_).newer) = block;
    newest_leaf_ = block;
}

void PrefixTree::unmake_leaf(PrefixBlock block) {
    Node& node = nodes_.at(block);
    if (!std::exchange(node.leaf, false)) return;
    (node.older == 0 ? oldest_leaf_ : nodes_.at(node.older).newer) = node.newer;
    (node.newer == 0 ? newest_leaf_ : nodes_.at(node.newer).older) = node.older;
}

void PrefixTree::hold(PrefixBlock block) {
    Node& node = nodes_.at(block);
    if (++node.holders > 1) return;
    --unheld_;
    unmake_leaf(block);
}

void PrefixTree::release(PrefixBlock block) {
    Node& node = nodes_.at(block);
    PACE_CHECK(node.holders > 0, "a block of a prefix released by one that does not hold it");
    if (--node.holders > 0) return;
    if (!node.found) {
        pages_.give(node.page);
        nodes_.erase(block);
        return;
    }
    ++unheld_;
    make_leaf(block);
    pages_.note_reclaimable();
}

PrefixBlock PrefixTree::insert(PrefixBlock parent, BlockTokens tokens, std::int32_t page) {
    Key key = key_of(parent, tokens);
    PACE_CHECK(!index_.contains(key), "a block inserted that is in the tree");
    const PrefixBlock block = ++newest_;
    unmake_leaf(parent);
    nodes_.at(parent).children.push_back(block);
    index_[key] = block;
    nodes_[block] = {.key = key, .page = page, .holders = 1};
    return block;
}

// ---- Pages

void PrefixTree::unlink(PrefixBlock block) {
    const Key& key = nodes_.at(block).key;
    Node& parent = nodes_.at(key.parent);
    std::erase(parent.children, block);
    if (parent.page < 0 && parent.children.empty()) {
        std::erase_if(roots_, [&](const auto& root) { return root.second == key.parent; });
        nodes_.erase(key.parent);
    } else {
        make_leaf(key.parent);
    }
    index_.erase(key);
}

void PrefixTree::lose(const LostKeys& lost) {
    ++losses_;
    for (auto& [block, node] : nodes_) node.lost.add(lost);
}

bool PrefixTree::evict() {
    if (oldest_leaf_ == 0) return false;
    const PrefixBlock block = oldest_leaf_;
    unmake_leaf(block);
    unlink(block);
    --unheld_;
    pages_.give(nodes_.at(block).page);
    nodes_.erase(block);
    return true;
}

void PrefixTree::clear() {
    ++losses_;
    index_.clear();
    oldest_leaf_ = newest_leaf_ = 0;
    roots_.clear();
    unheld_ = 0;
    for (auto at = nodes_.begin(); at != nodes_.end();) {
        Node& node = at->second;
        if (node.holders > 0) {
            node.found = false;
            node.children.clear();
            node.leaf = false;
            ++at;
            continue;
        }
        if (node.page >= 0) pages_.give(node.page);
        at = nodes_.erase(at);
    }
}

}  // namespace paceline
