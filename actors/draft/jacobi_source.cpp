#include "actors/draft/jacobi_source.hpp"

#include <algorithm>
#include <cmath>

namespace paceline {

void JacobiSource::commit(std::span<const TokenId> tokens) {
    if (tokens.empty()) return;
    std::vector<TokenId> next;
    if (guesses_.empty()) {
        const std::size_t known = std::min(count_, tokens.size());
        next.assign(tokens.end() - static_cast<std::ptrdiff_t>(known), tokens.end());
    } else {
        for (std::size_t i = tokens.size(); i <= guesses_.size(); ++i) {
            const bool is_guess = i < guesses_.size();
            const std::optional<TokenId> own = rows_.token(i - 1);
            if (own || is_guess) next.push_back(own ? *own : guesses_[i]);
        }
    }
    next.resize(count_, next.empty() ? tokens.back() : next.back());
    guesses_ = std::move(next);
    // A draft that runs ahead keeps its tree while it is right: its nodes are not named anew.
    rows_.shift(tokens.size());
}

/// The guesses after `path`; none if it is not made of guesses.
std::span<const TokenId> JacobiSource::behind(std::span<const TokenId> path) const {
    const std::span<const TokenId> all{guesses_};
    if (path.size() >= all.size() || !std::equal(path.begin(), path.end(), all.begin())) return {};
    return all.subspan(path.size());
}

std::vector<TokenId> JacobiSource::propose(std::span<const TokenId> path,
                                           std::int32_t gamma,
                                           const CancelToken& /*cancel*/) {
    const std::span<const TokenId> left = behind(path);
    const auto count = std::min(left.size(), static_cast<std::size_t>(std::max(gamma, 0)));
    return {left.begin(), left.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::vector<SourceNode> JacobiSource::grow(std::span<const TokenId> path,
                                           std::int32_t depth,
                                           const CancelToken& cancel) {
    if (path.empty()) rows_.plan();
    std::vector<SourceNode> nodes;
    for (const TokenId token : propose(path, depth, cancel)) {
        const std::size_t index = path.size() + nodes.size();
        nodes.push_back({.token = token,
                         .parent = static_cast<std::int32_t>(nodes.size()) - 1,
                         .log_prob = std::log(kUnknown),
                         .observe = rows_.name(index)});
    }
    return nodes;
}

}  // namespace paceline
