// DraftCache: the KV cache of a draft's model: which tokens and nodes of texts have slots in it,
// and which texts the model can serve.
//
//     open()            a text gets slots, behind blocks that it shares with texts before it
//     free_dropped()    before a pass: frees the slots of nodes that were dropped, publishes blocks
//     begin_behind()    what is before this position is not read; the rows so far are freed
//
// The target does not read this cache: an error in it costs acceptance, never exactness. The
// draft's vocabulary may be smaller than the target's: after a token that the draft does not know
// the model does not serve the text until enough tokens have followed, and then reads only those.
// Pages are taken as a text grows. A text that finds no page is not served until some are free.
// A text that is sent features waits for its first verdict, before which those of its prompt come.
// Borrows the backend's configuration; owns its KV slots, together with the texts.
// Threads: the actor's loop.
#pragma once

#include <cstdint>
#include <memory>

#include "actors/draft/draft_text.hpp"
#include "ipc/base/ids.hpp"
#include "model/backend.hpp"

namespace paceline {

/// How the rows of texts are computed.
struct DraftCacheRules {
    bool read_again = false;  // candidates that became text are computed anew
    bool waits = false;       // a text waits for its first verdict
};

class DraftCache {
public:
    /// Tokens behind an unknown one that make a context again.
    static constexpr Position kEnoughText = 16;

    DraftCache(const Backend& backend, DraftCacheRules rules);

    void open(DraftText& text) const;
    /// Whether the model can compute candidates after the text's root.
    [[nodiscard]] bool knows(const DraftText& text) const;
    /// Committed tokens before the root that are not in the cache; 0 if the model does not serve
    /// the text.
    [[nodiscard]] Position behind(const DraftText& text) const;
    /// Whether all keys before `position` of the text are in the cache, and the token there is
    /// known.
    [[nodiscard]] static bool has_read(const DraftText& text, Position position);
    /// Whether a row of this node can be computed. Precondition: the text was opened.
    [[nodiscard]] bool can_compute(const DraftText& text, const DraftNode& node) const;

    /// Not while a pass has rows of the text.
    void free_dropped(DraftText& text) const;
    void begin_behind(DraftText& text, Position unknown) const;

    /// That texts can take; those of cached blocks that none holds are among them.
    [[nodiscard]] std::int32_t free_pages() const;
    [[nodiscard]] const std::shared_ptr<DraftPool>& pool() const { return pool_; }

private:
    const ModelConfig& model_;
    DraftCacheRules rules_;
    std::shared_ptr<DraftPool> pool_;
};

}  // namespace paceline
