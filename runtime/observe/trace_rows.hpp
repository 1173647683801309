// The rows of a trace picture: for each incarnation of a stage its events by time, its slices, and
// the arrows that touch them. The half of trace_file.hpp that knows what events mean together; the
// other half writes JSON.
//
//   "batch"      formed -> its jobs on each segment -> verdict -> commit: same request and number
//   "proposal"  candidates sent -> the verdict that verified the root below which they stand: same
//               request and attempt, the verdict's first token one after the proposal's root
//
// Pure. Events are not trusted; those that cannot be matched have no arrow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/observe/trace_file.hpp"

namespace paceline {

/// One point of an arrow.
struct TraceArrow {
    const char* name;
    char phase;  // 's', 't', 'f': it begins, goes through, ends here
    std::int64_t id;
};

/// A job, a wait, or a mark that arrows may touch.
struct TraceSlice {
    std::int64_t start;
    std::int64_t end;
    const TraceEvent* event;
    std::vector<TraceArrow> arrows{};
    std::int64_t order = 0;  // among those of one time: an arrow's points must stand in order
};

/// One incarnation of a stage: a line of the picture.
struct TraceRow {
    const ProcessTrace* process;
    std::int64_t pid;
    std::int64_t tid;
    std::vector<TraceEvent> events{};  // those whose time makes sense, by time
    std::vector<TraceSlice> slices{};  // by start; each lies within or after those before it
};

[[nodiscard]] bool is_span(TraceKind kind);
[[nodiscard]] bool is_mark(TraceKind kind);

/// By stage and epoch. Borrows the processes.
[[nodiscard]] std::vector<TraceRow> trace_rows(std::span<const ProcessTrace> processes);

}  // namespace paceline
