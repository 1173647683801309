// DraftText: one request's text and candidate tree at a draft, and which of them are in the cache
// of the draft's model.
//
// follow() applies committed tokens to text, tree and cache alike. The part for the cache is made
// by DraftCache::open() and holds its slots; an abandoned job may hold a text longer than the model
// lives, so the pages are shared with it.
// Threads: the actor's loop; a job reads tokens and slots that the loop does not change meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/decoding/draft_tree.hpp"
#include "actors/decoding/request.hpp"
#include "actors/decoding/slot_allocator.hpp"
#include "ipc/base/ids.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline {

/// The pages of a draft's cache, and what texts share of them.
struct DraftPool {
    explicit DraftPool(std::int32_t kv_slots) : pages{kv_slots} {}
    KvPages pages;
    PrefixTree prefixes{pages};
};

/// A feature that is not in its slot yet.
struct KeptFeature {
    std::vector<float> states;
    std::shared_ptr<const int> counted;  // of DraftFeatures
};

struct DraftText {
    explicit DraftText(const Request& request);

    std::vector<TokenId> tokens;  // committed; the last one is the tree's root
    DraftTree tree;
    SamplingParams sampling;
    Position context;  // tokens that the text may have
    std::string cache_salt;
    int draw_top = 0;  // candidates are drawn from so many tokens; 0: the best ones

    /// Applies committed tokens to text, tree and cache.
    DraftTreeUpdate follow(std::span<const TokenId> more);

    struct Cache {
        std::shared_ptr<DraftPool> pool;
        RequestSlots slots;
        Position positions;                           // that the slots are for
        Position begin = 0;                           // of the text; what is before it is not known
        bool read_again = false;                      // candidates that became text are read anew
        bool waits = false;                           // for the first verdict
        std::size_t checked = 0;                      // tokens of the text that were looked at
        std::optional<std::uint64_t> short_at = {};   // KvPages::releases() when none was free
        std::vector<DraftNodeId> became_text = {};    // since the last pass was prepared
        std::vector<DraftTree::Freed> given_up = {};  // by candidates that are to be read anew
        // Of the target, by position; not in their slots yet.
        std::map<Position, KeptFeature> features = {};
        [[nodiscard]] Position cached() const {  // the text's tokens below this are in the cache
            return begin + static_cast<Position>(slots.committed().size());
        }
    };
    std::optional<Cache> cache = {};
};

}  // namespace paceline
