// DispatchOptions: when a target's first segment starts a batch, and which rows it takes.
//
// Plain values, as a pipeline's file has them ([schedule]); any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "actors/account/speculation_account.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

enum class StartRule : std::uint8_t {
    AtOnce,      // with the candidates in the tree: no draft, or one that runs ahead (event-driven)
    Sequential,  // wait for the draft's answer to the new root, but not longer than proposal_wait
    Lockstep,  // as PEARL and FOLD are published: rounds; the next batch waits for the verdict and
               // for the draft to complete its round (which it begins with the batch), but not
               // longer than proposal_wait
};

/// Which nodes of a tree a verify batch takes.
enum class BatchShape : std::uint8_t {
    Chain,  // the trunk: the best child, its best child, and so on
    Tree,   // the most probable nodes whose parents are sent or in the batch as well
};

struct DispatchOptions {
    StartRule start = StartRule::Sequential;
    BatchShape shape = BatchShape::Chain;
    Micros proposal_wait{2000};
    // Of one request in a batch, the root included; a path has at most kGammaMax + 1 of them.
    std::uint32_t rows_max = kGammaMax + 1;
    std::uint32_t batches_in_flight_max = 1;  // verify batches of one request
    // Of one request's prefill in a batch; read by all segments, for it bounds the batch.
    std::uint32_t prefill_rows = kVerifyRowsMax;
    std::uint32_t requests_max = kBatchPartsMax;  // that share a batch
    // Part of a batch's rows that is kept for prompts while other requests decode, 0 .. 0.9.
    float prompt_share = 0.25F;
    // A row is sent only if its path is at least this probable by its proposers' estimates; the
    // root always is sent. 0: no limit.
    float verify_reach_min = 0.0F;
    // Whether candidates are drafted and sent as far as they pay (actors/account).
    Controller controller = Controller::Off;
    std::uint64_t random_decisions = 0;  // of tests: AccountOptions::random_seed
    // An exit starts tokens early, whose batches the next segments may hold until the rows that it
    // proposed follow: these are always sent, and the account speaks to the exit alone.
    bool exits_start_early = false;
    bool draft_is_instant = false;  // the draft has a source that answers at once: a lookup

    /// Rows of the largest batch; at most kVerifyRowsMax of them are verify rows.
    [[nodiscard]] std::uint32_t batch_rows() const {
        return std::max(prefill_rows, kVerifyRowsMax);
    }
};

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const DispatchOptions& options);

}  // namespace paceline
