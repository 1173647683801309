// Whether an error caused by a message is the fault of its sender or of the stage that has read it.
//
//   Protocol error                        the sender: reported, to be replaced
//                                         (StageContext::report_fault)
//   Protocol error about the conductor    this stage: its connection or the conductor's memory is
//                                         broken
//   any other code, a PACE_CHECK          this stage: its backend, its memory, its own bug
//
// A late message is no error: one of an older attempt is Stale, one of a later attempt is
// Early (attempt_filter.hpp), one of another incarnation comes by another channel. These errors are
// the sender's fault:
//   - its form (message_checks.hpp): size, counts, and numbers beyond the vocabulary, context or
//     pool;
//   - a kind that this stage does not handle, or that only another stage may send;
//   - a message of the current attempt that does not continue those before it. Both ends have
//     applied the same messages in the same order by then: a segment's channels lose none, and a
//     draft, which may miss some, asks for its Begin again instead. If in fact the reader is wrong,
//     it reports the sender's next incarnation as well, and the Supervisor replaces the reader.
// Errors of work that a handler starts (a Begin that waited, the next run) are not the sender's
// fault; the actor reports them itself.
#pragma once

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "runtime/loop/actor.hpp"

namespace paceline {

/// Reports `from` and returns ok if `error` is its fault; otherwise returns the error.
[[nodiscard]] Status blame_sender(StageContext& context, StageId from, const Error& error);

}  // namespace paceline
