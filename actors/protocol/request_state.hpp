// RequestState: the state of a request in a target segment, and how batches and verdicts change it.
// Segments that have applied the same messages have the same state.
//
//     text   t0 t1 ... t(c-2)  t(c-1)         prompt and committed tokens
//     slots  s0 s1 ... s(c-2)                 where their keys and values are
//                              root: in the text, not yet in the cache; the tree hangs below it
//
// text and slots are reserved for the whole context when made and never move, so a job may read
// the part that was committed when it started while the loop appends after it.
// Threads: changed by the actor loop only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/decoding/begin_payload.hpp"
#include "actors/decoding/grammar/answer_grammar.hpp"
#include "actors/decoding/token_tree.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

inline constexpr std::size_t kTreeNodesMax = 1024;
/// Requests that a segment knows: of those that are over, the ones that were begun longest ago are
/// forgotten first.
inline constexpr std::size_t kStatesMax = std::size_t{4} * kRequestsMax;

class RequestState {
public:
    /// `spec` must be valid (validate()).
    RequestState(RequestId request, Attempt attempt, BeginPayload spec, TreeRole role);

    [[nodiscard]] RequestId request() const { return request_; }
    [[nodiscard]] Attempt attempt() const { return attempt_; }
    [[nodiscard]] const BeginPayload& spec() const { return spec_; }
    [[nodiscard]] const FinishRule& finish_rule() const { return finish_rule_; }
    [[nodiscard]] const std::vector<TokenId>& text() const { return text_; }
    [[nodiscard]] const std::vector<KvSlot>& slots() const { return slots_; }
    [[nodiscard]] TokenTree& tree() { return tree_; }
    [[nodiscard]] const TokenTree& tree() const { return tree_; }
    [[nodiscard]] FinishReason finish() const { return finish_; }
    /// Of the answer, in the stage that needs it; nullptr: none. It is the job's while one runs.
    [[nodiscard]] AnswerGrammar* grammar() const { return grammar_.get(); }
    /// `spec.compiled` is followed from now on. Before the first job. The loader outlives the
    /// state.
    void follow_grammar(GrammarLoader& loader);
    /// The answer has ended or was stopped: nothing new is computed for it. What is committed
    /// stays in the cache for a next turn, and a verdict that is still on its way still counts.
    [[nodiscard]] bool over() const { return stopped_ || finish_ != FinishReason::None; }
    void stop() { stopped_ = true; }
    /// Whether at least one of these verify rows is not stale: it is in the tree of a running
    /// request.
    [[nodiscard]] bool wants(std::span<const msg::BatchRow> rows) const;
    /// All of the text but the root is in the cache (or on its way there).
    [[nodiscard]] bool prefilled() const { return slots_.size() + 1 >= text_.size(); }

    /// The first tokens are in the cache already, 32 in each of these pages; before any other row.
    /// `matched`: tokens that the text has in common with what is cached.
    /// Errors: Protocol if they do not continue the slots, or are more than the text before its
    /// root.
    Status take_prefix(std::size_t first_block,
                       std::span<const std::int32_t> pages,
                       Position matched);
    /// Positions that were cached, and tokens that were matched, when the attempt began.
    [[nodiscard]] Position cached() const { return cached_; }
    [[nodiscard]] Position matched() const { return matched_; }
    /// A prefill batch goes to the layers: its slots join the table.
    /// Errors: Protocol if its rows are not the next committed tokens.
    Status take_prefill(Position base, std::span<const msg::BatchRow> rows);
    /// A verify part arrived from another segment: its rows join the replica of the tree.
    /// `drawn_below`: what was drawn after each row, or empty. Errors: Protocol as
    /// TokenTree::adopt.
    Status take_rows(std::span<const msg::BatchRow> rows,
                     std::span<const DrawnSiblingsPtr> drawn_below = {});
    /// Errors: Protocol if the verdict does not continue this text (the state is unchanged).
    Result<TreeUpdate> apply(const msg::Verdict& verdict);

private:
    RequestId request_;
    Attempt attempt_;
    BeginPayload spec_;
    FinishRule finish_rule_;
    std::vector<TokenId> text_;
    std::vector<KvSlot> slots_;
    TokenTree tree_;
    FinishReason finish_ = FinishReason::None;
    std::unique_ptr<AnswerGrammar> grammar_;
    bool stopped_ = false;
    Position cached_ = 0;
    Position matched_ = 0;
};

}  // namespace paceline
