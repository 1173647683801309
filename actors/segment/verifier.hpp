// Verifier: decides which candidates of a run are accepted, by the hidden states after the last
// layer. Used by FinalVerify.
//
// Head and sampling run inside the segment's job, after its layers. The walks of all requests go
// on together, in rounds; a round is one call of the head, which reads its weights once whatever
// the rows:
//
//     round   rows of the call (head_rows = 6)
//     1       the root of A, B and C, then the likeliest row below each       A A B B C C
//     2       what the walks want that is not computed yet, and what is likely below it
//
// A rejected rest is not computed. Any head_rows gives the same bits, since the head is
// row-invariant.
//
// Where a device draws after the rows of a run in one call with their layers
// (DeviceSampler::run_and_draw), the target's token of every row, rejected or not, is there before
// the walk begins: it reads them, and no head is called.
// The target's tokens after observed rows (msg::OwnTokens) are drawn as if the row had been
// accepted: such rows fill the calls of the walks, and the rest has calls of its own after them.
// Under the rejection rule they are the most probable tokens instead: no random number of
// acceptance is used for a proposal.
// A request that wants log probabilities (ScoreOptions) or has a grammar is verified from logits in
// host memory: the mask of a row is known when the walk is there.
//
// Owns the logits' memory and the sampler's scratch. Threads: one job at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/acceptance.hpp"
#include "actors/protocol/request_state.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"
#include "model/device_sampler.hpp"
#include "model/grammar/grammar.hpp"

namespace paceline {

struct VerifyOptions {
    std::uint32_t head_rows = 8;  // rows of one call of the head, 1 .. kVerifyRowsMax
    Chance* chance = nullptr;     // of the rejection rule, for tests; nullptr: the counter's
    std::shared_ptr<GrammarLoader> grammars =
        {};  // nullptr: requests with a grammar end this stage
};

/// The rows of one request in a run.
struct VerifyPart {
    const RequestState& state;
    std::span<const TokenId> committed;   // the text up to and including the root
    std::span<const msg::BatchRow> rows;  // the first is the root
    ConstHiddenRows hidden;               // [rows, dim] after the last layer
    // The target's own token after each row; empty: it is drawn from `hidden` here.
    std::span<const std::optional<TokenId>> drawn = {};
    std::vector<DrawnSiblingsPtr> drawn_below = {};  // by a draft, after each row; empty: nothing
    WalkResult result = {};                          // the result
    std::vector<msg::OwnToken> own = {};             // of observed rows, likewise
};

/// Consecutive rows of a prompt whose next tokens are scored.
struct ScoredRows {
    const RequestState& state;
    Position base;                         // of the first row
    std::size_t count;                     // of rows; the text goes on behind the last
    ConstHiddenRows hidden;                // [count, dim] after the last layer
    std::vector<TokenScores> scores = {};  // the result: of the tokens base + 1 .. base + count
};

class Verifier {
public:
    Verifier(Backend& backend, VerifyOptions options);
    ~Verifier();
    Verifier(const Verifier&) = delete;
    Verifier& operator=(const Verifier&) = delete;

    void verify(std::span<VerifyPart> parts);
    /// In calls of the head of at most head_rows rows.
    void score(ScoredRows& rows);

    /// Whether the target's tokens after a part's rows can be drawn with their layers.
    [[nodiscard]] bool draws_behind_rows(const RequestState& state) const;
    /// What is then drawn after a row. The state must outlive the job.
    [[nodiscard]] static DrawJob job_behind(const RequestState& state, const msg::BatchRow& row);

private:
    struct Walk;
    struct Observed;
    void compute(std::span<Walk> walks, std::size_t first, std::span<Observed> observed);
    [[nodiscard]] static std::vector<Observed> observed_rows(std::span<VerifyPart> parts);
    void call_head(std::span<const Walk> walks, std::span<const Observed> observed);
    void feed(std::span<Walk> walks);
    void read_drawn(Walk& walk);
    void feed_scored(Walk& walk, std::span<float> logits);
    [[nodiscard]] bool device_draws(const Walk& walk) const;
    [[nodiscard]] bool device_draws(std::span<const Walk> walks) const;
    void add_observed(std::span<const Walk> walks, std::span<Observed> observed);
    void take_observed(std::span<const Walk> walks, std::span<Observed> observed);
    void observe_rest(std::span<Walk> walks, std::span<Observed> observed);
    [[nodiscard]] std::optional<TokenId> own_token(const Observed& each);
    void draw(std::span<const Walk> walks,
              std::span<const Observed> observed,
              ConstHiddenRows hidden,
              std::size_t count);

    Backend& backend_;
    VerifyOptions options_;
    std::unique_ptr<SamplerScratch> scratch_;
    std::vector<RowSource> head_rows_;  // the rows of a call of the head
    RowMemory head_hidden_;             // [head_rows, dim]
    std::vector<float> logits_;         // [head_rows, vocab]
    RowScores row_scores_;              // of a row of a request that wants them
    // Where the device draws, instead of logits: what to draw, and what it said.
    bool drawn_ = false;
    std::vector<DrawJob> jobs_;
    std::vector<std::optional<TokenId>> tokens_;
};

/// Of the deepest of `rows` below the first: how much could have been accepted.
[[nodiscard]] std::uint32_t depth_of(std::span<const msg::BatchRow> rows);

/// The message that says it. `rows` were verified.
[[nodiscard]] msg::Verdict make_verdict(const msg::Route& route,
                                        BatchId batch,
                                        Position base,
                                        std::span<const msg::BatchRow> rows,
                                        const WalkResult& result);

}  // namespace paceline
