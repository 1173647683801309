// SourcesInTurn: the candidates of two sources in one tree, the first one's first. A token that
// both propose after the same path has the first one's probability.
//
// Owns both. Per request; not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "actors/draft/draft_source.hpp"

namespace paceline {

class SourcesInTurn final : public DraftSource {
public:
    SourcesInTurn(std::unique_ptr<DraftSource> first, std::unique_ptr<DraftSource> second)
        : first_{std::move(first)}, second_{std::move(second)} {}

    [[nodiscard]] DraftCost cost() const override {
        const bool instant =
            first_->cost() == DraftCost::Instant && second_->cost() == DraftCost::Instant;
        return instant ? DraftCost::Instant : DraftCost::Compute;
    }
    void commit(std::span<const TokenId> tokens) override {
        first_->commit(tokens);
        second_->commit(tokens);
    }
    [[nodiscard]] std::vector<SourceNode> grow(std::span<const TokenId> path,
                                               std::int32_t depth,
                                               const CancelToken& cancel) override {
        std::vector<SourceNode> nodes = first_->grow(path, depth, cancel);
        const auto offset = static_cast<std::int32_t>(nodes.size());
        for (SourceNode node : second_->grow(path, depth, cancel)) {
            if (node.parent >= 0) node.parent += offset;
            nodes.push_back(node);
        }
        return nodes;
    }
    /// Only the second one may observe: the names of two sources could be the same.
    void observe(std::span<const msg::OwnToken> own) override { second_->observe(own); }
    [[nodiscard]] bool observes() const override { return second_->observes(); }
    [[nodiscard]] msg::Origin origin() const override { return first_->origin(); }

private:
    std::unique_ptr<DraftSource> first_;
    std::unique_ptr<DraftSource> second_;
};

}  // namespace paceline
