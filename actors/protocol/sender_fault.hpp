// Who answers for an error that a message has led to: its sender, or the stage that has read it.
//
//   Protocol error                        the sender: reported, to be replaced (StageContext::report_fault)
//   Protocol error about the conductor    this stage: its connection or the conductor's memory is broken
//   any other code, a PACE_CHECK          this stage: its backend, its memory, its own bug
//
// A message that is merely late is no error: one of an older attempt is Stale, one of a later attempt is
// Early (inbox_gate.hpp), one of another incarnation comes by another channel. What is left names its
// sender:
//   - its form (message_checks.hpp): size, counts, and numbers beyond the vocabulary, context or pool;
//   - a kind that this stage does not handle, or that only another stage may send;
//   - a message of the current attempt that does not continue those before it. Both ends have applied the
//     same messages in the same order by then: a segment's channels lose none, and a draft, which may miss
//     some, asks again instead. If it is the reader that is wrong it complains of the next incarnation as
//     well, and then is replaced itself (Supervisor).
// A message that a handler leads to (a Begin that waited, the next run) is not the sender's: its errors go
// their own way.
#pragma once

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// Reports `from` if `error` is its fault; otherwise the error is the caller's.
[[nodiscard]] Status blame_sender(StageContext& context, StageId from, const Error& error);

}  // namespace paceline
