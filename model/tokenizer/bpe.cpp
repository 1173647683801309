#include "model/tokenizer/bpe.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
}

}  // namespace

Bpe::Bpe(const std::array<TokenId, 256>& byte_tokens, std::size_t merges_expected)
    : byte_tokens_{byte_tokens}, merges_(std::bit_ceil(2 * merges_expected + 2)) {}

std::size_t Bpe::slot_of(std::uint64_t pair) const {
    const std::size_t mask = merges_.size() - 1;
    // A multiplicative hash: the high half of the product depends on all bits of the pair.
    std::size_t slot = static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15) >> 32) & mask;
    while (merges_[slot].pair != pair && merges_[slot].pair != kEmpty) slot = (slot + 1) & mask;
    return slot;
}

const Bpe::Merge* Bpe::find(TokenId left, TokenId right) const {
    const Merge& merge = merges_[slot_of(pair_key(left, right))];
    return merge.pair == kEmpty ? nullptr : &merge;
}

void Bpe::add_merge(TokenId left, TokenId right, std::int32_t rank, TokenId joined) {
    PACE_CHECK(left >= 0 && right >= 0 && rank >= 0, "tokens and ranks are not negative");
    if (2 * (merge_count_ + 1) > merges_.size()) grow();
    const std::uint64_t pair = pair_key(left, right);
    Merge& merge = merges_[slot_of(pair)];
    if (merge.pair == kEmpty) ++merge_count_;
    merge = {pair, rank, joined};
}

void Bpe::grow() {
    std::vector<Merge> old = std::exchange(merges_, std::vector<Merge>(2 * merges_.size()));
    for (const Merge& merge : old) {
        if (merge.pair != kEmpty) merges_[slot_of(merge.pair)] = merge;
    }
}

void Bpe::push_symbol(Scratch& scratch, TokenId token) {
    const auto place = static_cast<std::int32_t>(scratch.symbols_.size());
    scratch.symbols_.push_back({token, place - 1, place + 1});
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    PACE_CHECK(piece.size() < std::numeric_limits<std::int32_t>::max(), "a piece is below 2 GiB");
    scratch.symbols_.clear();
    for (const char byte : piece) {
        const TokenId token = byte_tokens_[static_cast<unsigned char>(byte)];
        if (token >= 0) push_symbol(scratch, token);
    }
    finish(scratch, out);
}

void Bpe::merge(std::span<const TokenId> symbols,
                Scratch& scratch,
                std::vector<TokenId>& out) const {
    PACE_CHECK(symbols.size() < std::numeric_limits<std::int32_t>::max(), "below 2 Gi symbols");
    scratch.symbols_.clear();
    for (const TokenId symbol : symbols) push_symbol(scratch, symbol);
    finish(scratch, out);
}

void Bpe::finish(Scratch& scratch, std::vector<TokenId>& out) const {
    scratch.heap_.clear();
    if (scratch.symbols_.empty()) return;
    scratch.symbols_.back().next = -1;
    merge_all(scratch);
    for (const Scratch::Symbol& symbol : scratch.symbols_) {
        if (symbol.token >= 0) out.push_back(symbol.token);
    }
}

void Bpe::push_candidate(Scratch& scratch, std::int32_t left) const {
    const Scratch::Symbol& symbol = scratch.symbols_[static_cast<std::size_t>(left)];
    if (symbol.next < 0) return;
    const TokenId right = scratch.symbols_[static_cast<std::size_t>(symbol.next)].token;
    const Merge* merge = find(symbol.token, right);
    if (merge == nullptr) return;
    const auto order =
        static_cast<std::uint64_t>(merge->rank) << 32 | static_cast<std::uint32_t>(left);
    scratch.heap_.push_back({order, symbol.token, right, merge->joined});
    std::push_heap(scratch.heap_.begin(), scratch.heap_.end(),
                   [](const auto& a, const auto& b) { return a.order > b.order; });
}

void Bpe::merge_all(Scratch& scratch) const {
    const auto later = [](const auto& a, const auto& b) { return a.order > b.order; };
    auto& symbols = scratch.symbols_;
    auto& heap = scratch.heap_;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        push_candidate(scratch, static_cast<std::int32_t>(i));
    }
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), later);
        const Scratch::Candidate best = heap.back();
        heap.pop_back();
        const auto left = static_cast<std::int32_t>(best.order & 0xFFFFFFFF);
        Scratch::Symbol& first = symbols[static_cast<std::size_t>(left)];
        // A merge next to it may have made this candidate stale.
        if (first.token != best.left || first.next < 0) continue;
        Scratch::Symbol& second = symbols[static_cast<std::size_t>(first.next)];
        if (second.token != best.right) continue;
        first.token = best.joined;
        second.token = -1;
        first.next = second.next;
        if (first.next >= 0) symbols[static_cast<std::size_t>(first.next)].previous = left;
        push_candidate(scratch, left);
        if (first.previous >= 0) push_candidate(scratch, first.previous);
    }
}

}  // namespace paceline
