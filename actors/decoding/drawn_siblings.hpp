// DrawnSiblings: the children of a node that a draft drew from its own distribution q, and that
// distribution, as the rejection rule needs it (rejection.hpp).
//
//     q        the `count` most probable tokens of the draft after the request's own temperature,
//              filters and penalties; the weights are q up to their sum, which is not 1
//     drawn    the siblings: drawn from q one after the other, without replacement
//
// q is cut to these tokens before a token is drawn. So the list is the whole distribution, and
// min(1, p / q) is exact.
//
// Whether a candidate counts as drawn must not depend on its value; otherwise q would not be the
// distribution of the candidates that count. These rules guarantee it:
//
// - Siblings belong to their *parent's* row: the verifier tests all of them there, also those that
//   have no row of their own because the tree was full, the batch was full, the path was too
//   improbable, or the answer ends with them. One that is accepted without a row is committed as
//   the target's own token.
// - They are sent once, as soon as they are drawn and before anything that depends on them
//   (msg::Draw).
// - The dispatcher takes them for a node that it has and has not sent yet, the first time, and
//   keeps that node until a verdict. Whether it has the node, and has sent it, was decided before
//   they came.
// - In any other case (lost, too late, drawn twice, another rule) they count as point masses, like
//   candidates that were not drawn; the point-mass rule is exact for any candidate.
// - The random words of a draw are used for nothing else (CounterChance::Use::Drawing).
//
// How many siblings are drawn may depend on the first of them: the second is tested only if the
// first was rejected, with what is left of p and q.
// Plain values; pure functions.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "actors/decoding/rejection.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/wire/messages.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline {

struct DrawnSiblings {
    // q: the siblings first, in the order in which they were drawn, then the others.
    std::vector<msg::TokenWeight> support = {};
    std::size_t drawn = 0;  // siblings, 1 .. support.size()

    [[nodiscard]] std::vector<TokenId> tokens() const;
    [[nodiscard]] bool has(TokenId token) const;
    /// q of each token of a vocabulary, not normalised.
    void spread(std::vector<double>& q, std::size_t vocab) const;

    friend bool operator==(const DrawnSiblings&, const DrawnSiblings&) = default;
};

/// Shared, never changed: a node, its copies and the messages that carry it refer to one.
using DrawnSiblingsPtr = std::shared_ptr<const DrawnSiblings>;

/// What is drawn after one node.
struct DrawOrder {
    Position position = 0;     // of the tokens drawn
    TokenId parent = 0;        // the node's token
    int top = 1;               // q: so many tokens, 1 .. kDrawnSupportMax
    std::size_t count = 1;     // siblings, at most
    Chance* chance = nullptr;  // for tests; nullptr: the counter-based generator
};

/// Draws from a draft's logits [vocab], which may be changed in place. Parameters as those of
/// probabilities(), not greedy. nullptr if no token can be drawn.
[[nodiscard]] DrawnSiblingsPtr draw_siblings(std::span<float> logits,
                                             const SeenTokens& seen,
                                             const SamplingParams& params,
                                             const DrawOrder& order,
                                             SamplerScratch& scratch);

/// Draws up to `count` (>= 1) siblings from `support`: different tokens with weights > 0, at least
/// one of them and at most kDrawnSupportMax.
[[nodiscard]] DrawnSiblings draw_siblings(std::vector<msg::TokenWeight> support,
                                          std::size_t count,
                                          Chance& chance);

}  // namespace paceline
