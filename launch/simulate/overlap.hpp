// Overlap: the share of the time in which a draft and the target were both at work, from the jobs
// of a trace. Sequential decoding has no overlap.
//
// Jobs are told apart by their name: "draft" is the draft's, "verify", "prefill" and "exit" are the
// target's. Where a trace ring has lost its oldest events only the time that all parts still show
// is looked at. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "runtime/observe/trace.hpp"

namespace paceline {

struct Span {
    std::int64_t begin_us = 0;
    std::int64_t end_us = 0;
};

struct BusySpans {
    std::vector<Span> draft;
    std::vector<Span> target;
};

struct Overlap {
    double seconds = 0.0;  // that were looked at
    double draft = 0.0;    // shares of it: at least one draft was at work,
    double target = 0.0;   // at least one segment,
    double both = 0.0;     // and both
};

/// Adds the jobs of one process.
void add_spans(std::span<const TraceEvent> events, BusySpans& spans);

/// The jobs of a trace file (runtime/observe/trace_file.hpp). Errors: BadFile if it is not one.
[[nodiscard]] Result<BusySpans> spans_of_trace(std::string_view text);

/// Spans in any order, also overlapping ones. All zero without any work.
[[nodiscard]] Overlap overlap_of(const BusySpans& spans);

}  // namespace paceline
