// BigramSource: proposes the most frequent successor of the last token in the text so far.
// One per request, not thread-safe; bounded by the text: one entry per pair of neighbours.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "actors/draft/draft_source.hpp"

namespace paceline {

class BigramSource final : public DraftSource {
public:
    [[nodiscard]] DraftCost cost() const override { return DraftCost::Instant; }
    void commit(std::span<const TokenId> tokens) override {
        for (const TokenId token : tokens) {
            if (last_) ++followers_[*last_][token];
            last_ = token;
        }
    }
    [[nodiscard]] std::vector<TokenId> propose(std::span<const TokenId> path,
                                               std::int32_t gamma,
                                               const CancelToken& /*cancel*/) override {
        std::vector<TokenId> tokens;
        std::optional<TokenId> at = path.empty() ? last_ : std::optional{path.back()};
        while (at && std::ssize(tokens) < gamma) {
            at = successor(*at);
            if (at) tokens.push_back(*at);
        }
        return tokens;
    }

private:
    [[nodiscard]] std::optional<TokenId> successor(TokenId token) const {
        const auto found = followers_.find(token);
        if (found == followers_.end()) return std::nullopt;
        const auto rarer = [](const auto& a, const auto& b) { return a.second < b.second; };
        return std::max_element(found->second.begin(), found->second.end(), rarer)->first;
    }

    std::map<TokenId, std::map<TokenId, int>> followers_;
    std::optional<TokenId> last_;
};

}  // namespace paceline
