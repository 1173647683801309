#include "actors/decoding/prompt_lookup.hpp"

#include <algorithm>
#include <string>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

/// A hash of the n-gram, each token mixed by a multiply and a shift (constants of splitmix64).
/// Collisions cost a comparison, never a wrong match.
std::uint64_t hash_of(std::span<const TokenId> ngram) {
    std::uint64_t hash = 0x9e3779b97f4a7c15ULL;
    for (const TokenId token : ngram) {
        hash = (hash ^ static_cast<std::uint32_t>(token)) * 0xbf58476d1ce4e5b9ULL;
        hash ^= hash >> 29U;
    }
    return hash;
}

}  // namespace

Result<PromptLookup> PromptLookup::make(NgramRange range) {
    if (range.min_ngram < 1 || range.max_ngram < range.min_ngram || range.max_ngram > kNgramMax) {
        return Error{Errc::BadArgument,
                     "min_ngram = " + std::to_string(range.min_ngram) +
                         ", max_ngram = " + std::to_string(range.max_ngram) +
                         ": need 1 <= min_ngram <= max_ngram <= " + std::to_string(kNgramMax)};
    }
    return PromptLookup{range};
}

PromptLookup::PromptLookup(NgramRange range) {
    for (int n = range.max_ngram; n >= range.min_ngram; --n) {
        indices_.emplace_back().n = n;
    }
}

void PromptLookup::append(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) {
        // The n-grams that end before this token have something that follows them only now; so
        // the end of the text is never found as a match of itself.
        const std::size_t end = text_.size();
        for (Index& index : indices_) {
            index.older.push_back(-1);
            const auto n = static_cast<std::size_t>(index.n);
            if (end < n) continue;
            const std::uint64_t hash = hash_of(std::span{text_}.subspan(end - n, n));
            const auto [newest, is_new] =
                index.newest.try_emplace(hash, static_cast<std::int32_t>(end));
            if (!is_new) {
                index.older[end] = newest->second;
                newest->second = static_cast<std::int32_t>(end);
            }
        }
        text_.push_back(token);
    }
}

std::int32_t PromptLookup::latest_match(const Index& index, std::span<const TokenId> path) const {
    const auto n = static_cast<std::size_t>(index.n);
    if (text_.size() + path.size() < n) return -1;
    const std::size_t of_path = std::min(n, path.size());
    const std::span<const TokenId> of_text = std::span{text_}.last(n - of_path);
    std::vector<TokenId> suffix{of_text.begin(), of_text.end()};
    suffix.insert(suffix.end(), path.end() - static_cast<std::ptrdiff_t>(of_path), path.end());
    const auto found = index.newest.find(hash_of(suffix));
    if (found == index.newest.end()) return -1;
    for (std::int32_t end = found->second; end >= 0;
         end = index.older[static_cast<std::size_t>(end)]) {
        const auto ngram = std::span{text_}.subspan(static_cast<std::size_t>(end) - n, n);
        if (std::equal(ngram.begin(), ngram.end(), suffix.begin())) return end;
    }
    return -1;
}

std::vector<TokenId> PromptLookup::propose(std::int32_t gamma,
                                           std::span<const TokenId> path) const {
    std::vector<TokenId> tokens;
    if (gamma <= 0) return tokens;
    const auto at = [&](std::size_t i) {
        if (i < text_.size()) return text_[i];
        i -= text_.size();
        return i < path.size() ? path[i] : tokens[i - path.size()];
    };
    for (const Index& index : indices_) {
        const std::int32_t match = latest_match(index, path);
        if (match < 0) continue;
        for (std::size_t i = 0; i < static_cast<std::size_t>(gamma); ++i) {
            tokens.push_back(at(static_cast<std::size_t>(match) + i));
        }
        return tokens;
    }
    return tokens;
}

}  // namespace paceline
