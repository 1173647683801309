// ExitOptions: what a segment does with the hidden states at its end, beside passing them on.
//
// An exit is a head after the segment's last layer (the target's own as a logit lens, or a
// trained one). Its tokens are candidates only. Three uses, which may be combined:
//
//   candidates FOLD's Early Verify (section 4): after each row of a verify batch the `top` best
//              tokens are sent to draft and correct, which grow continuations below them
//   proposes   AdaDecode (section 3): if the probability of the token after the newest row is above
//              `gate`, that token starts at layer 0 at once, while the row's deeper layers run in
//              the next segment's process, or wait there (`defers`) until a row below the gate
//              arrives
//   ahead      at the last segment: heads that look two, three ... tokens on (AdaDecode,
//              appendix E) propose after each verdict: `ahead_top` children per node, or the tree
//              of `ahead_tree` (Medusa)
//
// With a head of HeadId::Adapter every row that passes goes through the backend's adapter, prefill
// too, so that it has the keys of the whole text.
//
// Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/ahead_heads.hpp"
#include "model/backend.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

inline constexpr std::uint32_t kExitTopMax = 8;

struct ExitOptions {
    HeadId head = HeadId::Final;
    bool sends_candidates = false;
    std::uint32_t top = 4;  // k: tokens proposed after each row, the trunk's own not counted
    std::vector<StageId> candidates_to = {};
    bool lockstep = false;  // as published: the batch goes on only when the draft has said that
                            // it is Halfway (first segment only)
    bool proposes = false;
    float gate = 0.75F;  // log_prob of the head's first choice must be above log(gate); 0: always
    std::uint32_t early_max = 5;  // rows without a verdict that an early token may stand after
    bool defers = false;
    Micros defer_limit{200'000};             // rows that wait for longer than this run anyway
    std::vector<HeadId> ahead = {};          // of the last segment, for positions + 2, + 3, ...
    std::uint32_t ahead_top = 1;             // children per node of their tree
    std::vector<AheadNode> ahead_tree = {};  // parents before children; empty: by ahead_top
    bool always_on = false;  // also when it costs more than it gains (account/exit_worth.hpp); in
                             // lockstep it always is
};

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const ExitOptions& options);

}  // namespace paceline
