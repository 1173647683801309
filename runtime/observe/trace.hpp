// What a trace consists of: one fixed-size event type, recorded by every process into a ring of
// its own (stage_telemetry.hpp) and merged into one time line (trace_file.hpp).
//
// Recording never allocates and never blocks; old events are overwritten.
#pragma once

#include <cstdint>

#include "ipc/base/ids.hpp"

namespace paceline {

enum class TraceKind : std::uint16_t {
    Job = 1,     // a span: a job on the stage's device; label = JobLabel::name's index
    Wait,        // a span: the loop slept or spun for input
    Send,        // an instant: a data message left; detail = its kind
    Receive,     // an instant: a data message is handled; detail = its kind
    Full,        // an instant: a send met a full channel
    Batch,       // an instant: a batch was formed; id = batch, position = base, count = rows
    Proposal,    // an instant: candidates were sent; position = of the root, count = candidates
    Verdict,     // an instant: a batch was verified; id = batch, position = base, count = committed
    Commit,      // an instant: the log took it; id, position, count as in Verdict
    Fenced,      // an instant: a message of an old attempt or epoch changed nothing
    PeerLost,    // an instant: peer
    PeerJoined,  // an instant: peer
    Replay,      // an instant: a request begins anew; position = committed tokens
    Mark,        // an instant: whatever an actor wants to see
};
[[nodiscard]] const char* name_of(TraceKind kind);

/// What a job is about, for the trace and for the simulation's costs.
struct JobLabel {
    const char* name =
        "job";  // of static storage: "prefill", "verify", "draft", "exit", "optimise"
    RequestId request{};
    std::uint32_t id = 0;      // of the batch
    std::uint32_t rows = 0;    // that go through the layers
    std::uint32_t layers = 0;  // that they go through
    std::uint32_t heads = 0;   // rows for which a head is computed as well, as far as is known
    std::int32_t context = 0;  // tokens that the longest row sees
};

/// In TraceEvent::self: the first actor of the process, which has the process's id.
inline constexpr StageId kUnknownActor{0xffff};

struct TraceEvent {
    std::int64_t time_us = 0;       // CLOCK_MONOTONIC, or the simulation's clock
    std::uint32_t duration_us = 0;  // of a span; 0 for an instant
    TraceKind kind = TraceKind::Mark;
    StageId peer{};  // whom it went to or came from
    RequestId request{};
    Attempt attempt{};
    std::uint32_t id = 0;
    std::int32_t position = 0;
    std::uint32_t count = 0;
    std::uint32_t detail = 0;
    std::uint32_t label = 0;  // of a job: an index, see job_name()
    // Of Send and Receive, so that the two are matched where actors share a process and where
    // channels are made anew (trace_file.hpp).
    StageId self = kUnknownActor;  // the actor here
    std::uint16_t heads = 0;       // of a job: JobLabel::heads
    Epoch peer_epoch{};            // 0: unknown
};
static_assert(sizeof(TraceEvent) == 56);

/// Names of jobs as numbers, because a pointer means nothing in another process.
[[nodiscard]] std::uint32_t job_name_index(const char* name);
[[nodiscard]] const char* job_name(std::uint32_t index);
[[nodiscard]] std::uint16_t heads_of(const JobLabel& label);

}  // namespace paceline
