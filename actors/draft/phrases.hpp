// Phrases: Ouroboros (Zhao et al., 2024) around a draft model, for one request. A pool of n-grams
// makes drafting faster and drafts longer:
//
//     text ... r -- t1 -- t2 -- t3 -- t4 -- p p p p      the trunk, and below its tip K phrases:
//                                       \-- p p p p      n-grams of the pool that begin with t4,
//                                                        verified in the same forward
//
//     own tokens    r3   r4  ...                         the target's tokens after t3, t4 ..: if t3
//                                                        was the first wrong one, (r3 r4 .. ) are
//                                                        n-grams of the target's own language
//
// The draft drafts for itself by Lookahead decoding (lookahead_source.hpp), with its own model in
// the place of the target: beside the trunk's tip a pass computes guesses from the pool, which it
// keeps as far as they are its own choices, and a window that gives the pool more n-grams. Both are
// tentative nodes of the tree (DraftTree::add_tentative) until the pass has ended.
//
//     extend()       the round's trunk is complete: phrases, and names for its rows
//     observe()      the target's tokens after named rows; may be left out, or come twice
//     commit()       a verdict; the own tokens behind the first rejected one go into the pool
//     plan_pass()    before a pass that expands the trunk's tip: nodes to expand beside it
//     passed()       after it
//
// Shares the pool, with other requests of the process if it is theirs too: then the speed of one
// answer depends on the texts of others, never its bytes. Per request; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/decoding/draft_tree.hpp"
#include "actors/decoding/guesses/ngram_pool.hpp"
#include "actors/draft/lookahead_source.hpp"
#include "actors/draft/observed_rows.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

struct PhraseOptions {
    std::int32_t phrases = 3;         // K, 0 ..
    LookaheadOptions lookahead = {};  // of the draft for itself; its ngram is that of the pool

    [[nodiscard]] std::shared_ptr<NgramPool> make_pool() const;
};

class Phrases {
public:
    /// `pool`: nullptr for one of its own, otherwise of make_pool().
    Phrases(const PhraseOptions& options, std::shared_ptr<NgramPool> pool);

    /// Tokens that were committed since the last call; the first call brings the prompt.
    void commit(std::span<const TokenId> tokens);
    void observe(std::span<const msg::OwnToken> own) { rows_.take(own); }
    /// Names the rows of the trunk, and adds the phrases below its tip, at most `deepest` below the
    /// root. The model does not expand them.
    void extend(DraftTree& tree, std::int32_t deepest);

    /// Adds tentative nodes below `tip`, the trunk's end; which of them the pass expands, the best
    /// first. The trunk may grow by `tokens` in this pass.
    [[nodiscard]] std::vector<DraftNodeId> plan_pass(DraftTree& tree,
                                                     DraftNodeId tip,
                                                     std::int32_t tokens);
    /// Reads what the model said after tentative nodes, and drops those that it did not propose.
    void passed(DraftTree& tree);

    [[nodiscard]] const NgramPool& pool() const { return *pool_; }

private:
    void learn(std::span<const TokenId> tokens);

    PhraseOptions options_;
    std::shared_ptr<NgramPool> pool_;
    std::vector<TokenId> end_;    // of the text, as far as an n-gram reaches
    ObservedRows rows_;           // of the trunk, by depth
    std::vector<TokenId> trunk_;  // the tokens of the named rows
    LookaheadSource drafting_;    // the draft's own; its text ends with drafted tokens
    std::optional<TokenId> drafted_last_ = {};                        // the last of them
    DraftNodeId tip_ = kNoDraftNode;                                  // of the pass
    std::vector<std::pair<DraftNodeId, std::uint8_t>> columns_ = {};  // ends of the window's
};

}  // namespace paceline
