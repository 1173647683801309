// LookaheadSource: Lookahead decoding (Fu et al., 2024) as a draft source: a window of parallel
// Jacobi trajectories fills a pool of n-grams, and the n-grams that follow the text's last token
// are the candidates. Needs no model and no training.
//
// With window W = 4 and ngram N = 5, below the root r:
//
//     row 0    r   a1  a2  a3         a chain of W - 1 nodes
//              |   |   |   |
//     row 1    b0  b1  b2  b3         column j: a branch of N - 2 nodes below the j-th node of
//     row 2    c0  c1  c2  c3         row 0 (0: the root), so that its tokens see row 0 up to
//     row 3    d0  d1  d2  d3         there and their own column alone
//              |   |   |   |
//              e0  e1  e2  e3         what the target says after each column, which is observed
//
// Then (r, b0 c0 d0 e0), (a1, b1 c1 d1 e1) ... are n-grams for the pool, and the window moves up by
// one row and one position: b1 b2 b3 | c | d | e. At most `guesses` n-grams that begin with the
// root are proposed, of which one is accepted as far as it is right: up to N tokens in one round.
//
// The window begins with W + N - 3 tokens of the prompt in row 0; each round adds a row, and there
// are no guesses until all rows are there. A column whose own token did not come (its message was
// lost, or its rows were not verified) keeps its last row's token and gives no n-gram; without any
// the window stays. The pool is the request's own.
// Random numbers are this source's own, never those of acceptance. Per request; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/decoding/guesses/ngram_pool.hpp"
#include "actors/draft/draft_source.hpp"
#include "actors/draft/observed_rows.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

struct LookaheadOptions {
    std::int32_t window = 7;       // W, 1 ..
    std::int32_t ngram = 5;        // N, 3 ..
    std::int32_t guesses = 7;      // G, 0 ..
    bool pool_from_prompt = true;  // n-grams of the text itself are in the pool as well

    /// Of a batch, the root included, at most.
    [[nodiscard]] std::int32_t rows() const;
    /// Of the deepest node below the root.
    [[nodiscard]] std::int32_t depth() const { return std::max(window + ngram - 3, ngram - 1); }
};

/// Errors: BadArgument for more rows than a batch has, or a deeper tree than a verdict allows.
[[nodiscard]] Status validate(const LookaheadOptions& options);

class LookaheadSource final : public DraftSource {
public:
    /// `options` are valid.
    explicit LookaheadSource(LookaheadOptions options);
    /// With a pool of n-grams of the same length, which others may share.
    LookaheadSource(LookaheadOptions options, std::shared_ptr<NgramPool> pool);

    [[nodiscard]] DraftCost cost() const override { return DraftCost::Instant; }
    void commit(std::span<const TokenId> tokens) override;
    /// The newest guess that goes on after `path`.
    [[nodiscard]] std::vector<TokenId> propose(std::span<const TokenId> path,
                                               std::int32_t gamma,
                                               const CancelToken& cancel) override;
    [[nodiscard]] std::vector<SourceNode> grow(std::span<const TokenId> path,
                                               std::int32_t depth,
                                               const CancelToken& cancel) override;
    void observe(std::span<const msg::OwnToken> own) override { rows_.take(own); }
    [[nodiscard]] bool observes() const override { return true; }
    [[nodiscard]] msg::Origin origin() const override { return msg::Origin::Lookup; }

    /// Row 0, then the rows below it that are there.
    [[nodiscard]] const std::vector<std::vector<TokenId>>& window() const { return window_; }
    [[nodiscard]] const NgramPool& pool() const { return *pool_; }

private:
    [[nodiscard]] bool complete() const;
    [[nodiscard]] std::size_t columns() const;
    void begin_window();
    void step();
    void add_window(std::vector<SourceNode>& nodes) const;
    void add_guesses(std::vector<SourceNode>& nodes) const;

    LookaheadOptions options_;
    std::vector<TokenId> text_;
    std::vector<std::vector<TokenId>> window_;
    std::shared_ptr<NgramPool> pool_;
    ObservedRows rows_;
    bool planned_ = false;  // grow() has been asked about the text's end
};

}  // namespace paceline
