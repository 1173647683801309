// Acceptance: decides which candidates of one request in a batch are accepted: a walk down the tree
// that asks for one row's logits at a time.
//
//     BatchWalk walk(...);
//     while (auto row = walk.wanted()) walk.feed(logits of that row);
//     walk.take()
//
// Coupled (the default). The target draws its own token at a row from that row's logits and the
// counter-based noise of the position; a candidate is accepted if it equals that token. So the text
// depends on model, prompt, parameters and seed alone, and not on the candidates:
//
//     at = root row
//     loop: y = sample(logits(at), position(at) + 1)      the target's own token
//           commit y;  stop if y ends the answer
//           at = the child of `at` whose token is y;  stop if the batch holds none
//
// Rejection (the papers' rule; Leviathan et al., and recursively over siblings as in SpecInfer).
// A candidate that was not drawn is a point mass: the child x of a row with the target's p is
// accepted with probability p(x); if it is rejected, p becomes p without x, normalised, for the
// next sibling; if all are rejected the target draws from the remaining p. Siblings that were drawn
// from a q (drawn_siblings.hpp) are tested first, with min(1, p / q) and the residual max(p - q,
// 0), also those without a row: one that is accepted without a row is the target's own token. The
// text then depends on the candidates, its distribution does not (rejection.hpp has the proof for
// rows with both kinds). Random numbers come from the counter-based generator, keyed by position
// and the number of the sibling: none is used twice.
//
// Unverified (AdaDecode's ablation, for benchmarks): the first candidate below a row is accepted
// without a test; where there is none the target draws as under coupled. The text is not the
// target's. A candidate can only be accepted in the batch that holds its parent's row.
//
// A grammar masks the target's logits at each row, after bias and penalties: what it forbids is
// never the target's token, whatever is proposed, and the matcher accepts the tokens of the walk,
// nothing else.
//
// Lazy: only rows on the walked path are asked for, so a rejected row costs no sampling.
// Pure. Not thread-safe (the scratch).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/drawn_siblings.hpp"
#include "actors/decoding/finish_rule.hpp"
#include "actors/decoding/grammar/answer_grammar.hpp"
#include "actors/decoding/rejection.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"
#include "model/sampling/sampling.hpp"
#include "model/sampling/token_scores.hpp"

namespace paceline {

enum class AcceptanceRule : std::uint8_t { Coupled, Rejection, Unverified };

struct WalkResult {
    std::vector<TokenId>
        tokens;                 // committed by this batch: the accepted ones, then the target's own
    std::vector<NodeId> nodes;  // the accepted nodes: tokens.size() - 1 of them
    FinishReason finish = FinishReason::None;
    std::size_t last_row = 0;  // the row that the target's own last token was drawn from
    std::vector<TokenScores> scores = {};  // of each token, if they are wanted; by the verifier
};

struct WalkInput {
    std::span<const msg::BatchRow> rows;  // of one request, tree order; rows[0] is the root
    std::span<const TokenId> committed;   // prompt and answer so far; the root's token is the last
    const SamplingParams& sampling;
    const FinishRule& finish;
    AcceptanceRule rule = AcceptanceRule::Coupled;
    Chance* chance = nullptr;  // of the rejection rule; nullptr: the counter-based generator
    // Of the rejection rule: what was drawn after each row, nullptr for nothing. Empty: nothing at
    // all.
    std::span<const DrawnSiblingsPtr> drawn_below = {};
    AnswerGrammar* grammar = nullptr;  // of the answer
};

class BatchWalk {
public:
    /// What `input` refers to must outlive the walk. With a grammar that cannot be loaded or cannot
    /// follow the text it is over, with FinishReason::GrammarFailed.
    explicit BatchWalk(const WalkInput& input);

    /// The row whose logits come next; nothing when the walk is over.
    [[nodiscard]] std::optional<std::size_t> wanted() const;
    /// Rows that may be wanted after `row` if candidates are right: the first child, its first
    /// child and so on, `row` included, at most `count`. To compute several in one pass of the
    /// head.
    [[nodiscard]] std::vector<std::size_t> likely_path(std::size_t row, std::size_t count) const;
    /// Logits [vocab] of the wanted row; may be changed in place.
    /// If no token can be drawn (all NaN, -inf or forbidden) the walk ends with Finish::Failed and
    /// the tokens accepted before, the last of which takes the place of the target's own; maybe
    /// none.
    void feed(std::span<float> logits, SamplerScratch& scratch);
    /// The same with the target's own token of the wanted row, if one could be drawn. For the
    /// coupled rule without a grammar, whose draw needs nothing but the row.
    void feed(std::optional<TokenId> own);
    /// The tokens that the walk has committed so far.
    [[nodiscard]] std::span<const TokenId> tokens() const { return result_.tokens; }
    /// How that token is drawn, and for which position after `row`.
    [[nodiscard]] const SamplingParams& sampling() const { return input_.sampling; }
    [[nodiscard]] Position position_behind(std::size_t row) const {
        return input_.rows[row].position + 1;
    }
    [[nodiscard]] bool coupled() const { return input_.rule == AcceptanceRule::Coupled; }
    [[nodiscard]] bool masked() const { return input_.grammar != nullptr; }

    /// At most kGammaMax + 1 tokens, which is what a verdict carries. Once, after the walk.
    [[nodiscard]] WalkResult take();

private:
    [[nodiscard]] std::vector<std::size_t> children(std::size_t row) const;
    [[nodiscard]] std::optional<TokenId> chosen(std::span<float> logits, SamplerScratch& scratch);
    [[nodiscard]] TokenId choose_by_rejection();
    void take_own(std::optional<TokenId> own);
    void commit(TokenId own);
    void fail(FinishReason reason);

    WalkInput input_;
    std::optional<std::size_t> at_;
    WalkResult result_;
    std::vector<float> probabilities_;  // of the rejection rule, [vocab]
    std::vector<double> weights_;       // the same, as the rule uses them up
    std::vector<double> proposed_;      // of drawn siblings: their q, [vocab]
};

}  // namespace paceline
