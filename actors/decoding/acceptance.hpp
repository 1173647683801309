// Coupled acceptance: what the target says to a wave.
//
// The target draws its own token at a row from that row's logits and the counter-based noise of
// the position; a guess is accepted if it *is* that token. So the committed text depends on
// model, prompt, parameters and seed alone, whatever was guessed:
//
//     at = root row
//     loop: y = sample(logits(at), position(at) + 1)      the target's own token
//           commit y;  stop if y ends the answer
//           at = the child of `at` whose token is y;  stop if the wave holds none
//
// Lazy: only rows on the walked path are asked for logits, so a rejected row costs no sampling.
// Pure apart from the logits it asks for. Not thread-safe (the scratch).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "actors/decoding/finish_rule.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/messages.hpp"
#include "model/sampling/sampling.hpp"

namespace paceline {

struct Judged {
    std::vector<TokenId>
        tokens;                 // committed by this wave: the accepted ones, then the target's own
    std::vector<NodeId> nodes;  // the accepted nodes: tokens.size() - 1 of them
    msg::Finish finish = msg::Finish::No;
    std::size_t rows_sampled = 0;
};

/// Logits [vocab] of row `row` of the wave; may be changed in place by the caller.
using LogitsOfRow = std::function<std::span<float>(std::size_t row)>;

struct CoupledInput {
    std::span<const msg::WaveRow> rows;  // tree order; rows[root] is the root
    std::size_t root = 0;
    std::span<const TokenId> committed;  // prompt and answer so far; the root's token is the last
    const SamplingParams& sampling;
    const FinishRule& finish;
};

/// Walks the wave. At most kGammaMax + 1 tokens come out, which is what a verdict carries.
/// If no token can be drawn (all logits NaN or -inf) finish is Failed and `tokens` are those
/// accepted before; it may then be empty.
[[nodiscard]] Judged judge_coupled(const CoupledInput& input,
                                   const LogitsOfRow& logits,
                                   SamplerScratch& scratch);

}  // namespace paceline
