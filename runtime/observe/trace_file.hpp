// The trace file: the events of several processes on one time line, as JSON that
// https://ui.perfetto.dev and chrome://tracing open.
//
//   segment-1  epoch 1  |w|[ verify 7      ]. . . . . . . . |w|[ verify 8 ]
//                          :   \ frame in flight
//   segment-2  epoch 1  [wait.......]  [ verify 7  ]|verdict 7|
//                                       :                  \ frame
//   conductor  epoch 1  [wait..........................] |commit 7|
//
// Each stage is a process of the picture, each of its incarnations a thread. Jobs and waits are
// slices; batches, proposals, verdicts and commits are slices of a microsecond, because arrows need
// slices at both ends; the rest are instants. An arrow follows a batch from where it was formed
// through the jobs that computed it to its verdict and its commit, another one a proposal from
// where it was sent to the verdict that verified its root (trace_rows.hpp). A frame between two
// processes is an asynchronous slice from Send to Receive, and how many are on their way is a
// counter.
//
// Pure. The events come from processes that may have died or written garbage, so they are not
// trusted: for any events the text is well-formed JSON, times only grow, and slices of one row
// nest. Events that cannot be matched have no arrow and no asynchronous slice.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "runtime/observe/trace.hpp"

namespace paceline {

/// What one incarnation of a stage recorded.
struct ProcessTrace {
    std::string name;
    StageId stage{};
    Epoch epoch{};
    std::vector<TraceEvent> events;
    /// How many were ever recorded (StageTelemetryView::traced()). More than there are: the oldest
    /// were overwritten, and its frames cannot be matched any more.
    std::uint64_t recorded = 0;
};

[[nodiscard]] std::string trace_file_text(std::span<const ProcessTrace> processes);

}  // namespace paceline
