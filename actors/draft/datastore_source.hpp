// DatastoreSource: REST as a draft source: a tree of what followed the text's end in a datastore
// (datastore.hpp). Needs no model and no training.
//
// Shares the mapped file with the sources of other requests. Per request; not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "actors/decoding/guesses/datastore.hpp"
#include "actors/draft/draft_source.hpp"

namespace paceline {

class DatastoreSource final : public DraftSource {
public:
    DatastoreSource(std::shared_ptr<const Datastore> store, StoreOptions options)
        : store_{std::move(store)}, options_{options} {}

    /// Thousands of places of a mapped file are read.
    [[nodiscard]] DraftCost cost() const override { return DraftCost::Compute; }
    /// The last tokens are kept, as far as they can be looked up.
    void commit(std::span<const TokenId> tokens) override {
        end_.insert(end_.end(), tokens.begin(), tokens.end());
        const std::size_t kept = std::min(end_.size(), static_cast<std::size_t>(kStoreNgramMax));
        end_.erase(end_.begin(), end_.end() - static_cast<std::ptrdiff_t>(kept));
    }
    [[nodiscard]] std::vector<SourceNode> grow(std::span<const TokenId> path,
                                               std::int32_t /*depth*/,
                                               const CancelToken& cancel) override {
        std::vector<TokenId> text = end_;
        text.insert(text.end(), path.begin(), path.end());
        std::vector<SourceNode> nodes;
        for (const StoreNode& node : store_->candidates(text, options_, cancel)) {
            nodes.push_back({.token = node.token,
                             .parent = node.parent,
                             .log_prob = std::log(static_cast<float>(node.count) /
                                                  static_cast<float>(node.of))});
        }
        return nodes;
    }
    [[nodiscard]] msg::Origin origin() const override { return msg::Origin::Lookup; }

private:
    std::shared_ptr<const Datastore> store_;
    StoreOptions options_;
    std::vector<TokenId> end_;
};

}  // namespace paceline
