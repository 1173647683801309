#include "actors/decoding/guesses/prompt_lookup.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <utility>

namespace paceline {
namespace {

// How often the token after a match was right, by the longest length of the group: chat, code,
// maths and summaries of a small instruct model, greedy, 3544 tokens.
struct Group {
    int length_max;
    float right;
};
constexpr std::array<Group, 9> kMeasured{{{1, 0.23F},
                                          {2, 0.53F},
                                          {3, 0.58F},
                                          {4, 0.68F},
                                          {5, 0.70F},
                                          {6, 0.77F},
                                          {11, 0.82F},
                                          {15, 0.90F},
                                          {kNgramMax, 0.96F}}};
constexpr float kMeasuredWeight = 8.0F;  // counts as so many matches of this text
constexpr float kKept = 0.95F;           // weight kept per match: about twenty matches count

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
        return Error{
            Errc::BadArgument,
            fmt::format("min_ngram = {}, max_ngram = {}: need 1 <= min_ngram <= max_ngram <= {}",
                        range.min_ngram, range.max_ngram, kNgramMax)};
    }
    return PromptLookup{range};
}

std::size_t PromptLookup::group_of(int length) {
    static_assert(kMeasured.size() == kGroups);
    const auto group = std::find_if(kMeasured.begin(), kMeasured.end(),
                                    [&](const Group& g) { return length <= g.length_max; });
    return std::min(static_cast<std::size_t>(group - kMeasured.begin()), kGroups - 1);
}

float PromptLookup::confidence(int length) const {
    const std::size_t group = group_of(length);
    const Record& record = records_[group];
    return (record.right + kMeasuredWeight * kMeasured[group].right) /
           (record.seen + kMeasuredWeight);
}

void PromptLookup::append(std::span<const TokenId> tokens) {
    const auto n = static_cast<std::size_t>(range_.min_ngram);
    for (const TokenId token : tokens) {
        if (const Match match = longest_match({}); match.length > 0) {
            Record& record = records_[group_of(match.length)];
            record.seen = record.seen * kKept + 1.0F;
            record.right = record.right * kKept + (text_[match.end] == token ? 1.0F : 0.0F);
        }
        // The n-gram that ends before this token has something that follows it only now; so the
        // end of the text is never found as a match of itself.
        const std::size_t end = text_.size();
        older_.push_back(-1);
        if (end >= n) {
            const auto place = static_cast<std::int32_t>(end);
            const auto [newest, is_new] =
                newest_.try_emplace(hash_of(std::span{text_}.last(n)), place);
            if (!is_new) older_[end] = std::exchange(newest->second, place);
        }
        text_.push_back(token);
    }
}

PromptLookup::Match PromptLookup::longest_match(std::span<const TokenId> path) const {
    const std::size_t all = text_.size() + path.size();
    const auto most = std::min(static_cast<std::size_t>(range_.max_ngram), all);
    const auto least = static_cast<std::size_t>(range_.min_ngram);
    if (most < least) return {};
    std::array<TokenId, kNgramMax> end{};  // the last `most` tokens, in order
    for (std::size_t i = 0; i < most; ++i) {
        const std::size_t at = all - most + i;
        end[i] = at < text_.size() ? text_[at] : path[at - text_.size()];
    }
    const auto suffix = std::span{end}.first(most);
    const auto found = newest_.find(hash_of(suffix.last(least)));
    if (found == newest_.end()) return {};
    Match best;
    std::int32_t place = found->second;
    for (int looked = 0; place >= 0 && looked < kPlacesMax; ++looked) {
        const auto before = static_cast<std::size_t>(place);
        std::size_t length = 0;
        while (length < std::min(most, before) &&
               text_[before - 1 - length] == suffix[most - 1 - length]) {
            ++length;
        }
        if (length >= least && static_cast<int>(length) > best.length) {
            best = {before, static_cast<int>(length)};
        }
        if (length == most) break;
        place = older_[before];
    }
    return best;
}

std::vector<Candidate> PromptLookup::propose(std::int32_t gamma,
                                             std::span<const TokenId> path) const {
    std::vector<Candidate> candidates;
    if (gamma <= 0) return candidates;
    const Match match = longest_match(path);
    if (match.length == 0) return candidates;
    const auto at = [&](std::size_t i) {
        if (i < text_.size()) return text_[i];
        i -= text_.size();
        return i < path.size() ? path[i] : candidates[i - path.size()].token;
    };
    for (std::int32_t i = 0; i < gamma; ++i) {
        candidates.push_back({.token = at(match.end + static_cast<std::size_t>(i)),
                              .log_prob = std::log(confidence(match.length + i))});
    }
    return candidates;
}

}  // namespace paceline
