// A toy target for tests of draft sources: the next token is a function of the last few, so that
// guesses are right now and then; and a round of it over a source's tree, as a batch would do it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "actors/draft/draft_source.hpp"

namespace paceline::testing {

using Tokens = std::vector<TokenId>;

class ToyText {
public:
    ToyText(std::uint64_t seed, int vocab, std::size_t order)
        : seed_{seed}, vocab_{static_cast<std::uint64_t>(vocab)}, order_{order} {}

    /// After `text`, greedily. It looks at the last tokens, and now and then at the length.
    [[nodiscard]] TokenId next(std::span<const TokenId> text) const {
        std::uint64_t hash = seed_ * 0x9e3779b97f4a7c15ULL + 1;
        for (const TokenId token : text.last(std::min(order_, text.size())))
            hash = (hash ^ static_cast<std::uint64_t>(token + 1)) * 0xbf58476d1ce4e5b9ULL;
        if (text.size() % 11 == 0) hash ^= text.size() * 0x94d049bb133111ebULL;
        return static_cast<TokenId>((hash >> 33U) % vocab_);
    }
    [[nodiscard]] TokenId next(std::span<const TokenId> text, std::span<const TokenId> path) const {
        Tokens whole{text.begin(), text.end()};
        whole.insert(whole.end(), path.begin(), path.end());
        return next(whole);
    }

private:
    std::uint64_t seed_;
    std::uint64_t vocab_;
    std::size_t order_;
};

/// What a batch makes of a source's nodes: one row for each path, whoever proposed it.
struct ToyRound {
    std::map<Tokens, std::uint8_t> rows;  // paths below the root, and their names if observed
    std::vector<msg::OwnToken> own;
    Tokens committed;  // the accepted path and the target's own token
};

inline ToyRound toy_round(const ToyText& target,
                          std::span<const TokenId> text,
                          std::span<const SourceNode> nodes) {
    ToyRound round;
    std::vector<Tokens> paths;
    for (const SourceNode& node : nodes) {
        Tokens path = node.parent < 0 ? Tokens{} : paths[static_cast<std::size_t>(node.parent)];
        path.push_back(node.token);
        std::uint8_t& name = round.rows[path];
        if (node.observe != 0) name = node.observe;
        paths.push_back(std::move(path));
    }
    for (const auto& [path, name] : round.rows) {
        if (name != 0) round.own.push_back({.node = name, .token = target.next(text, path)});
    }
    while (true) {
        const TokenId own = target.next(text, round.committed);
        round.committed.push_back(own);
        if (!round.rows.contains(round.committed)) return round;
    }
}

}  // namespace paceline::testing
