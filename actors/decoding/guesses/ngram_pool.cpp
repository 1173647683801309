#include "actors/decoding/guesses/ngram_pool.hpp"

#include <algorithm>

#include "ipc/base/check.hpp"

namespace paceline {

void NgramPool::add(TokenId first, std::span<const TokenId> tokens) {
    PACE_CHECK(tokens.size() + 1 == length_, "an n-gram of another length");
    if (guesses_ == 0) return;
    if (!pool_.contains(first) && pool_.size() >= firsts_max_) forget_oldest();
    Known& entry = pool_[first];
    entry.added = ++additions_;
    std::deque<std::vector<TokenId>>& known = entry.ngrams;
    const auto same = std::find_if(known.begin(), known.end(), [&](const auto& other) {
        return std::equal(other.begin(), other.end(), tokens.begin(), tokens.end());
    });
    if (same != known.end()) known.erase(same);
    known.emplace_front(tokens.begin(), tokens.end());
    if (known.size() > guesses_) known.pop_back();
}

void NgramPool::forget_oldest() {
    const auto oldest = std::min_element(
        pool_.begin(), pool_.end(),
        [](const auto& a, const auto& b) { return a.second.added < b.second.added; });
    if (oldest != pool_.end()) pool_.erase(oldest);
}

void NgramPool::add_end_of(std::span<const TokenId> text, std::size_t tokens) {
    for (std::size_t end = text.size() - std::min(tokens, text.size()) + 1; end <= text.size();
         ++end) {
        if (end < length_) continue;
        const std::span<const TokenId> ngram = text.subspan(end - length_, length_);
        add(ngram.front(), ngram.subspan(1));
    }
}

const std::deque<std::vector<TokenId>>& NgramPool::after(TokenId first) const {
    static const std::deque<std::vector<TokenId>> none;
    const auto found = pool_.find(first);
    return found == pool_.end() ? none : found->second.ngrams;
}

}  // namespace paceline
