// Trace events from another machine, into the telemetry block that the conductor keeps of the stage
// there (runtime/cluster). Defined in stage_telemetry.cpp, which knows the block's layout.
//
// Events are not trusted, as those of a local stage are not: they can only make a picture wrong.
// Threads: the caller is the block's only writer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/observe/trace.hpp"

namespace paceline {

/// How many events a mapped block has room for; 0: none, or it is no block.
[[nodiscard]] std::uint32_t trace_capacity_of(std::span<const std::byte> memory);
/// Appends to the trace of a mapped block; `shift` is added to their times. Nothing happens if it
/// has no trace.
void append_trace(std::span<std::byte> memory,
                  std::span<const TraceEvent> events,
                  std::chrono::nanoseconds shift);

}  // namespace paceline
